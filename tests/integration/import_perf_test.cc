// Recordings made here and now, in every form perf record has, against perf script's reading of them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/import_pipeline.h"
#include "tests/integration/import_support.h"

namespace xenprof {
namespace {

int Shell(const std::string& command) { return std::system(command.c_str()); }

std::string OutputOf(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[65536];
  size_t got;
  while ((got = fread(buffer, 1, sizeof buffer, pipe)) > 0) text.append(buffer, got);
  pclose(pipe);
  return text;
}

class ImportPerfTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new std::string(absl::StrCat(::testing::TempDir(), "/import-perf-", getpid()));
    mkdir(folder_->c_str(), 0700);
    if (Shell("command -v perf > /dev/null 2>&1") != 0) {
      *missing_ = "perf is not installed";
    } else if (Shell(absl::StrCat("perf record -q -a -e cpu-clock -o ", *folder_,
                                  "/try.data true > /dev/null 2>&1")) != 0) {
      *missing_ = "perf record -a -e cpu-clock is refused here";
    }
    // Something that is sampled in user and kernel mode, and programs that come and go.
    load_ = fork();
    if (load_ == 0) {
      setpgid(0, 0);
      execl("/bin/sh", "sh", "-c",
            "while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; /bin/cat /proc/self/maps > "
            "/dev/null; done",
            nullptr);
      _exit(127);
    }
    setpgid(load_, load_);
  }
  static void TearDownTestSuite() {
    if (load_ > 0) {
      kill(-load_, SIGKILL);
      waitpid(load_, nullptr, 0);
    }
    Shell(absl::StrCat("rm -rf ", *folder_));
    delete folder_;
    folder_ = nullptr;
  }

  void SetUp() override {
    if (!missing_->empty()) GTEST_SKIP() << *missing_;
  }

  static std::string Path(const std::string& name) { return absl::StrCat(*folder_, "/", name); }

  // Runs `perf record ARGUMENTS -o FILE sleep 0.4`.
  static std::string Record(const std::string& arguments, const std::string& name) {
    const std::string path = Path(name), log = Path("record.log");
    const std::string command =
        absl::StrCat("perf record -q ", arguments, " -o ", path, " sleep 0.4 > ", log, " 2>&1");
    int status = Shell(command);
    if (status != 0) {
      // perf 6.1 may crash while it collects build ids ("stack smashing detected"). What it said is shown.
      std::cout << "perf record " << arguments << " ended with " << status << ": " << OutputOf("cat " + log)
                << "\n";
      status = Shell(command);
    }
    EXPECT_EQ(status, 0) << "perf record " << arguments << " said: " << OutputOf("cat " + log);
    return path;
  }

  struct Printed {
    uint32_t tid = 0;
    std::vector<uint64_t> addresses;
    std::vector<bool> mapped;  // perf knows a file there
  };
  // By time: of all CPUs, since not every recording tells the CPU.
  using PrintedSamples = std::multimap<uint64_t, Printed>;

  static PrintedSamples PerfScript(const std::string& path, const std::string& event) {
    PrintedSamples samples;
    const std::string output = OutputOf(
        absl::StrCat("perf script --no-inline -F tid,time,event,ip,dso --ns -i ", path, " 2> /dev/null"));
    Printed* last = nullptr;
    for (absl::string_view line : absl::StrSplit(output, '\n')) {
      if (line.empty()) continue;
      if (line[0] == '\t') {
        uint64_t address = 0;
        const std::string text(absl::StripAsciiWhitespace(line));  // a name may follow
        EXPECT_TRUE(absl::SimpleHexAtoi(text.substr(0, text.find(' ')), &address)) << line;
        if (last != nullptr) {
          last->addresses.push_back(address);
          last->mapped.push_back(!absl::EndsWith(text, "([unknown])"));
        }
        continue;
      }
      unsigned tid = 0;
      unsigned long long seconds = 0, nanoseconds = 0;
      const std::string header(line);
      EXPECT_EQ(std::sscanf(header.c_str(), "%u %llu.%llu:", &tid, &seconds, &nanoseconds), 3) << header;
      last = nullptr;
      const size_t at = header.find(absl::StrCat(" ", event));
      if (at == std::string::npos) continue;
      last = &samples.emplace(seconds * 1000000000 + nanoseconds, Printed{tid, {}})->second;
      // Without a chain the address stands on the same line.
      uint64_t address = 0;
      absl::string_view rest = absl::string_view(header).substr(at);
      rest = rest.substr(0, rest.rfind(" ("));
      if (absl::SimpleHexAtoi(absl::StripAsciiWhitespace(rest.substr(rest.rfind(' '))), &address)) {
        last->addresses.push_back(address);
        last->mapped.push_back(true);
      }
    }
    return samples;
  }

  // What perf script prints of user frames: offsets in their files in chains, the address itself where there
  // is no chain.
  enum class Frames { kAsOffsets, kAbsolute, kIgnored };

  // Every sample that perf script prints, with its thread and its addresses.
  static void Compare(const std::string& path, const std::string& event = "cpu-clock",
                      Frames frames = Frames::kAsOffsets) {
    client::ImportOptions options;
    options.input = path;
    options.output = Path("out.xenprof");
    options.event = event;
    const auto result = client::ImportPerfData(options);
    ASSERT_TRUE(result.ok()) << result.status();
    const PrintedSamples printed = PerfScript(path, event);
    EXPECT_GT(printed.size(), 20u) << path;
    EXPECT_EQ(result->samples, printed.size());
    EXPECT_EQ(result->bad_records + result->orphan_samples, 0u);
    EXPECT_EQ(result->mode, ModeKind::kPlainLinux);
    const Chunk chunk = ReadChunkFile(options.output);
    ASSERT_EQ(chunk.samples.size(), printed.size());

    uint64_t different = 0, discarded = 0;
    for (const ChunkSample& sample : chunk.samples) {
      // Two CPUs may be sampled in one nanosecond.
      bool found = false;
      const auto [first, last] = printed.equal_range(sample.time);
      for (auto it = first; it != last && !found; ++it) {
        const Printed& want = it->second;
        if (sample.pid != 0 && want.tid != sample.tid) continue;
        // A user stack may hold a value that looks like a context marker perf does not know: then perf throws
        // the whole chain away.
        const bool thrown_away = want.addresses.empty() && !sample.frames.empty() &&
                                 sample.frames.back().kind == FrameKind::kDom0User;
        discarded += thrown_away;
        found = frames == Frames::kIgnored || thrown_away ||
                SameFrames(want, sample.frames, frames == Frames::kAbsolute);
        if (!found && ++different <= 3) {
          std::string text = "printed:";
          for (uint64_t address : want.addresses) absl::StrAppend(&text, " ", absl::Hex(address));
          absl::StrAppend(&text, "\nimported:");
          for (const ChunkFrame& f : sample.frames)
            absl::StrAppend(&text, " ", absl::Hex(f.address), "(", f.mapping, ")");
          ADD_FAILURE() << path << " at " << sample.time << " tid " << sample.tid << "\n" << text;
        }
      }
      EXPECT_TRUE(found || different > 0)
          << path << ": no sample printed at " << sample.time << " of tid " << sample.tid;
    }
    EXPECT_EQ(different, 0u);
    EXPECT_LT(discarded * 10, printed.size());
  }

  // perf prints user addresses as offsets in their file, and so does it for [vdso] and files without a name
  // in any folder, which are no files here; else they must be the same. Callers that perf prints although
  // nothing is mapped there end the stack here.
  static bool SameFrames(const Printed& printed, const std::vector<ChunkFrame>& have, bool absolute) {
    const std::vector<uint64_t>& want = printed.addresses;
    size_t count = have.size();
    if (count > 1 && have.back().mapping == "[unknown]" && have.back().address == 0) {
      --count;
      if (want.size() <= count || printed.mapped[count]) return false;
    } else if (want.size() != count) {
      return false;
    }
    for (size_t i = 0; i < count; ++i) {
      if (want[i] == have[i].address) continue;
      if (have[i].kind != FrameKind::kDom0User || (have[i].is_file && !absolute) ||
          have[i].mapping == "[unknown]" || want[i] % 4096 != have[i].address % 4096) {
        return false;
      }
    }
    return true;
  }

  static std::string* folder_;
  static std::string* missing_;
  static pid_t load_;
};
std::string* ImportPerfTest::folder_ = nullptr;
std::string* ImportPerfTest::missing_ = new std::string();
pid_t ImportPerfTest::load_ = 0;

TEST_F(ImportPerfTest, Plain) { Compare(Record("-a -g -e cpu-clock -F 499", "plain.data")); }
TEST_F(ImportPerfTest, WithoutChains) {
  Compare(Record("-a -e cpu-clock -F 499", "flat.data"), "cpu-clock", Frames::kAbsolute);
}
TEST_F(ImportPerfTest, FixedPeriod) { Compare(Record("-a -g -e cpu-clock -c 2000000", "period.data")); }
TEST_F(ImportPerfTest, BuildIdsInMappings) {
  Compare(Record("-a -g -e cpu-clock -F 499 --buildid-mmap", "build-ids.data"));
}
TEST_F(ImportPerfTest, Compressed) {
  const std::string path = Record("-a -g -e cpu-clock -F 499 -z", "compressed.data");
  if (Shell(absl::StrCat("perf report --header-only -i ", path, " 2> /dev/null | grep -q '# compressed'")) !=
      0) {
    GTEST_SKIP() << "this perf was built without zstd";
  }
  Compare(path);
}
TEST_F(ImportPerfTest, ThroughAPipe) {
  for (const char* option : {"", "-z"}) {
    const std::string path = Path("pipe.data");
    ASSERT_EQ(Shell(absl::StrCat("perf record -q -a -g -e cpu-clock -F 499 ", option,
                                 " -o - sleep 0.4 2> /dev/null > ", path)),
              0);
    Compare(path);
  }
}
TEST_F(ImportPerfTest, SeveralEventsOfDifferentLayouts) {
  const std::string path =
      Record("-a -e cpu-clock/call-graph=fp,freq=499/ -e page-faults/call-graph=no,period=1/", "events.data");
  Compare(path, "cpu-clock/call-graph=fp,freq=499/");
  client::ImportOptions options;
  options.input = path;
  options.output = Path("out.xenprof");
  options.event = "page-faults";
  const auto result = client::ImportPerfData(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples, PerfScript(path, "page-faults").size());
  ASSERT_EQ(result->left_out.size(), 1u);
  EXPECT_EQ(result->left_out[0].samples, PerfScript(path, "cpu-clock").size());
}
TEST_F(ImportPerfTest, OneProcess) {
  Compare(Record(absl::StrCat("-g -e cpu-clock -F 499 -p ", load_), "process.data"));
}
TEST_F(ImportPerfTest, StackCopies) {
  // perf script walks the copies with DWARF, so that only samples, threads and times are comparable.
  Compare(Record("-a --call-graph dwarf -e cpu-clock -F 299", "dwarf.data"), "cpu-clock", Frames::kIgnored);
}
TEST_F(ImportPerfTest, FolderOfThreads) {
  const std::string path = Path("threads.data");
  if (Shell(absl::StrCat("perf record -q -a -g -e cpu-clock -F 499 --threads -o ", path,
                         " sleep 0.4 > /dev/null 2>&1")) != 0) {
    GTEST_SKIP() << "this perf has no --threads";
  }
  Compare(path);
}

// perf record killed on the way: perf script gives up, what was written is there all the same.
TEST_F(ImportPerfTest, Killed) {
  const std::string path = Path("killed.data");
  const pid_t perf = fork();
  if (perf == 0) {
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, 1);
    dup2(null, 2);
    execlp("perf", "perf", "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", "4000", "-m", "16", "-o",
           path.c_str(), "sleep", "30", nullptr);
    _exit(127);
  }
  // Until some rounds of samples are on disk.
  struct stat info = {};
  for (int i = 0; i < 300 && info.st_size < 2000000; ++i) {
    usleep(20000);
    if (stat(path.c_str(), &info) != 0) info = {};
  }
  kill(perf, SIGKILL);
  waitpid(perf, nullptr, 0);
  client::ImportOptions options;
  options.input = path;
  options.output = Path("out.xenprof");
  const auto result = client::ImportPerfData(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->samples, 100u);
  ASSERT_FALSE(result->warnings.empty());
  EXPECT_NE(result->warnings[0].find("did not end properly"), std::string::npos);
  EXPECT_EQ(ReadChunkFile(options.output).samples.size(), result->samples);
}

}  // namespace
}  // namespace xenprof
