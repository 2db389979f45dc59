// xenprofctl as people run it: its commands on real chunks, its output in the programs it is made for.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "control.pb.h"
#include "tests/unit/profile/chunk_maker.h"
#include "xenprof/base/framing.h"

namespace xenprof {
namespace {

using profile::ChunkMaker;
using profile::kXenHostSamples;
using profile::TemporaryFolder;
using testing::HasSubstr;
using testing::Not;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

struct Outcome {
  int status = -1;
  std::string out, err;
};

class ClientTest : public testing::Test {
 protected:
  // `command` goes through the shell.
  Outcome Shell(const std::string& command) {
    Outcome outcome;
    const std::string err = folder_.File("stderr"), out = folder_.File("stdout");
    const int status = std::system(absl::StrCat("(", command, ") >'", out, "' 2>'", err, "'").c_str());
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    outcome.out = ReadAll(out);
    outcome.err = ReadAll(err);
    return outcome;
  }
  Outcome Client(const std::string& arguments) { return Shell(absl::StrCat(XENPROFCTL, " ", arguments)); }
  std::string File(const std::string& name) const { return folder_.File(name); }
  // "" when the program is not installed.
  std::string Find(const std::string& program) {
    const Outcome found = Shell("command -v " + program);
    return found.status == 0 ? std::string(absl::StripSuffix(found.out, "\n")) : "";
  }

  TemporaryFolder folder_;
};

uint64_t FoldedTotal(const std::string& text) {
  uint64_t sum = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    uint64_t count = 0;
    EXPECT_TRUE(absl::SimpleAtoi(line.substr(line.rfind(' ') + 1), &count)) << line;
    sum += count;
  }
  return sum;
}

TEST_F(ClientTest, ExitStatusTellsUsageFromFailure) {
  const std::string chunk = profile::WriteXenHostChunk(File("a.xenprof"));
  EXPECT_EQ(Client("").status, 2);
  EXPECT_EQ(Client("no-such-command").status, 2);
  EXPECT_EQ(Client("report --no-such-option").status, 2);
  EXPECT_EQ(Client("export --format svg " + chunk).status, 2);
  EXPECT_EQ(Client("export -o out.png " + chunk).status, 2);
  EXPECT_EQ(Client("report --from never " + chunk).status, 2);
  EXPECT_EQ(Client("snapshot").status, 2);
  EXPECT_EQ(Client("--help").status, 0);
  EXPECT_EQ(Client("report --help").status, 0);
  EXPECT_EQ(Client("--version").status, 0);
  EXPECT_EQ(Client("report " + chunk).status, 0);
  const Outcome missing = Client("report " + File("none.xenprof"));
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr("none.xenprof: No such file or directory"));
  std::ofstream(File("text.xenprof")) << "this is no chunk";
  const Outcome wrong = Client("report " + File("text.xenprof"));
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.err, HasSubstr("text.xenprof"));
  EXPECT_EQ(wrong.out, "");
}

TEST_F(ClientTest, EveryFormatHoldsEverySample) {
  const std::string chunk = profile::WriteXenHostChunk(File("a.xenprof"));
  const Outcome folded = Client("export --format folded " + chunk);
  EXPECT_EQ(folded.status, 0) << folded.err;
  EXPECT_EQ(FoldedTotal(folded.out), kXenHostSamples);
  EXPECT_THAT(Client("export --format text " + chunk).out,
              HasSubstr("samples    1,000, standing for 10.00 s"));
  // The ending tells the format, an older file is replaced.
  std::ofstream(File("out.folded")) << "old";
  EXPECT_EQ(Client("export -o " + File("out.folded") + " " + chunk).status, 0);
  EXPECT_EQ(ReadAll(File("out.folded")), folded.out);
  EXPECT_EQ(Client("export -o " + File("out.html") + " " + chunk).status, 0);
  EXPECT_TRUE(absl::StartsWith(ReadAll(File("out.html")), "<!DOCTYPE html>"));
  // A folder means the chunks in it.
  EXPECT_EQ(FoldedTotal(Client("export --format folded " + folder_.path()).out), kXenHostSamples);
}

TEST_F(ClientTest, CutsWindows) {
  const std::string chunk = profile::WriteXenHostChunk(File("a.xenprof"));
  EXPECT_EQ(FoldedTotal(Client("export --format folded --last 3 " + chunk).out), 300);
  // The chunk begins 1,700,000,001 s after 1970.
  EXPECT_EQ(FoldedTotal(Client("export --format folded --from @1700000002 --to @1700000004 " + chunk).out),
            200);
  const Outcome cut =
      Client("export --from @1700000002 --to @1700000004 -o " + File("cut.xenprof") + " " + chunk);
  ASSERT_EQ(cut.status, 0) << cut.err;
  EXPECT_EQ(Client("verify " + File("cut.xenprof")).status, 0);
  EXPECT_EQ(FoldedTotal(Client("export --format folded " + File("cut.xenprof")).out), 200);
  // Beside what it was cut from, nothing counts twice.
  EXPECT_EQ(FoldedTotal(Client("export --format folded " + File("cut.xenprof") + " " + chunk).out),
            kXenHostSamples);
  const Outcome outside = Client("report --from @1800000000 " + chunk);
  EXPECT_EQ(outside.status, 1);
  EXPECT_THAT(outside.err, HasSubstr("none of the 1 chunks covers any of"));
}

TEST_F(ClientTest, ListsAndVerifies) {
  const std::string chunk = profile::WriteXenHostChunk(File("a.xenprof"));
  const Outcome list = Client("list " + folder_.path());
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("2023-11-14 22:13:21.000       10.00 s        1,000        0        0 "));
  const Outcome good = Client("verify " + chunk);
  EXPECT_EQ(good.status, 0);
  EXPECT_THAT(good.out, HasSubstr("a.xenprof: good: 5 blocks, 1,000 samples, 0 lost, 0 shed"));

  std::string bytes = ReadAll(chunk);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(File("flipped.xenprof"), std::ios::binary) << bytes;
  const Outcome flipped = Client("verify " + chunk + " " + File("flipped.xenprof"));
  EXPECT_EQ(flipped.status, 1);
  EXPECT_THAT(flipped.out, HasSubstr("flipped.xenprof: offset "));
  std::ofstream(File("cut.xenprof"), std::ios::binary) << bytes.substr(0, bytes.size() / 3);
  EXPECT_EQ(Client("verify " + File("cut.xenprof")).status, 1);
  EXPECT_EQ(Client("report " + File("flipped.xenprof")).status, 1);
}

TEST_F(ClientTest, JsonIsJson) {
  const std::string python = Find("python3");
  if (python.empty()) GTEST_SKIP() << "python3 is not installed: the JSON is not parsed";
  const std::string chunk = profile::WriteXenHostChunk(File("a.xenprof"));
  for (const std::string command :
       {"report --json ", "report --json --lines ", "list --json ", "verify --json "}) {
    const Outcome parsed =
        Shell(absl::StrCat(XENPROFCTL, " ", command, chunk, " | ", python, " -m json.tool"));
    EXPECT_EQ(parsed.status, 0) << command << parsed.err;
  }
  const Outcome total = Shell(absl::StrCat(
      XENPROFCTL, " report --json ", chunk, " | ", python,
      " -c 'import json,sys; r=json.load(sys.stdin); print(r[\"samples\"], sum(r[\"origins\"].values()), "
      "sum(f[\"self\"] for f in r[\"functions\"]) + r[\"without_stack\"])'"));
  EXPECT_EQ(total.out, "1000 1000 1000\n") << total.err;
}

TEST_F(ClientTest, AReaderThatLeavesIsNoNews) {
  const std::string chunk = profile::WriteXenHostChunk(File("a.xenprof"));
  for (const std::string command : {"report ", "export --format folded "}) {
    const Outcome outcome = Shell(absl::StrCat("trap '' PIPE; ", XENPROFCTL, " ", command, chunk, " | true"));
    EXPECT_EQ(outcome.err, "");
  }
}

TEST_F(ClientTest, GoPprofReadsTheExport) {
  const std::string go = Find("go");
  if (go.empty()) GTEST_SKIP() << "go is not installed (golang-go): go tool pprof does not check the export";
  const std::string chunk = profile::WriteXenHostChunk(File("a.xenprof"));
  ASSERT_EQ(Client("export -o " + File("out.pb.gz") + " " + chunk).status, 0);
  const std::string environment =
      absl::StrCat("HOME='", folder_.path(), "' GOCACHE='", File("gocache"), "' ");
  const Outcome top = Shell(absl::StrCat(
      environment, go, " tool pprof -symbolize=none -sample_index=samples -top '", File("out.pb.gz"), "'"));
  ASSERT_EQ(top.status, 0) << top.err;
  EXPECT_THAT(top.out, HasSubstr("of 1000 total"));
  EXPECT_THAT(top.out, HasSubstr("do_domctl"));
  EXPECT_THAT(top.out, HasSubstr("mode: xen stacks"));
}

TEST_F(ClientTest, GoLibraryFindsTheExportValid) {
  const std::string go = Find("go");
  if (go.empty() || !std::filesystem::exists("/usr/share/gocode/src/github.com/google/pprof/profile")) {
    GTEST_SKIP()
        << "golang-go and golang-github-google-pprof-dev are not both installed: the export is not checked "
           "with pprof's own library";
  }
  const std::string checker = File("check_pprof");
  const Outcome built = Shell(absl::StrCat("HOME='", folder_.path(), "' GOCACHE='", File("gocache"),
                                           "' GO111MODULE=off ", "GOPATH=/usr/share/gocode ", go,
                                           " build -o '", checker, "' '", CHECK_PPROF_GO, "'"));
  ASSERT_EQ(built.status, 0) << built.err;
  const std::string chunk = profile::WriteXenHostChunk(File("a.xenprof"));
  ASSERT_EQ(Client("export -o " + File("out.pprof") + " " + chunk).status, 0);
  const Outcome checked = Shell(checker + " " + File("out.pprof"));
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_EQ(checked.out, absl::StrCat(kXenHostSamples, " ", kXenHostSamples * 10'000'000, "\n"));
}

class PageTest : public ClientTest {
 protected:
  // The page as a browser has it after its scripts ran; "" after a skip.
  std::string Browse(const std::string& page, const std::string& fragment = "") {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
      const std::string browser = Find(name);
      if (browser.empty()) continue;
      const Outcome dom =
          Shell(absl::StrCat("HOME='", folder_.path(), "' ", browser,
                             " --headless=new --no-sandbox --disable-gpu --user-data-dir='", File("browser"),
                             "' --virtual-time-budget=20000 --dump-dom 'file://", page, fragment, "'"));
      EXPECT_EQ(dom.status, 0) << dom.err;
      return dom.out;
    }
    return "";
  }
};

TEST_F(PageTest, DrawsInABrowser) {
  const std::string chunk = profile::WriteXenHostChunk(File("a.xenprof"));
  ASSERT_EQ(Client("export -o " + File("out.html") + " " + chunk).status, 0);
  const std::string dom = Browse(File("out.html"), "#search=do_domctl");
  if (dom.empty()) GTEST_SKIP() << "chromium is not installed: the page is not tried in a browser";
  EXPECT_THAT(dom, HasSubstr("data-ready=\"true\""));
  EXPECT_THAT(dom, HasSubstr("(1,000 samples)"));
  EXPECT_THAT(dom, HasSubstr("10.00 % matched (100)"));
  EXPECT_THAT(dom, HasSubstr("xen_for_guest<span>20.00 %</span>"));
  EXPECT_THAT(dom, HasSubstr("complete: nothing lost on 2 CPUs"));
  EXPECT_THAT(dom, HasSubstr("xen stacks: callers seen"));
  EXPECT_THAT(dom, HasSubstr("hypercall_page"));
}

TEST_F(PageTest, HostileNamesStayText) {
  ChunkMaker maker;
  const std::string evil =
      "</script><script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">";
  const uint32_t program = maker.Mapping(FrameKind::kDom0User, "/tmp/" + evil, true);
  maker.symbolizer.functions["/tmp/" + evil] = {{0x1000, 0x100, evil}};
  const uint32_t stack = maker.Stack({{program, 0x1004}}, Origin::kDom0User);
  const uint32_t task = maker.Task(1, 1, evil);
  for (uint64_t i = 0; i < 10; ++i) maker.Sample(0, maker.start_ns + i, stack, task);
  maker.header.mutable_host()->set_hostname(evil);
  maker.header.mutable_mode()->set_reason(evil);
  ASSERT_EQ(Client("export -o " + File("out.html") + " " + maker.Write(File("a.xenprof"))).status, 0);
  const std::string dom = Browse(File("out.html"));
  if (dom.empty()) GTEST_SKIP() << "chromium is not installed: the page is not tried in a browser";
  EXPECT_THAT(dom, HasSubstr("data-ready=\"true\""));
  EXPECT_THAT(dom, Not(HasSubstr("<title>hacked")));
  EXPECT_THAT(dom, Not(HasSubstr("<img")));
  EXPECT_THAT(dom, HasSubstr("&lt;img src=x onerror="));
}

TEST_F(PageTest, HoldsAHundredThousandNodes) {
  ChunkMaker maker;
  const uint32_t program = maker.Mapping(FrameKind::kDom0User, "/usr/bin/wide", true);
  const uint32_t task = maker.Task(1, 1, "wide");
  std::vector<symbols::Function> functions;
  for (uint64_t i = 0; i < 2000; ++i) functions.push_back({i * 0x100, 0x100, absl::StrCat("function_", i)});
  maker.symbolizer.functions["/usr/bin/wide"] = functions;
  uint32_t state = 7;
  uint64_t samples = 0;
  for (int s = 0; s < 12'000; ++s) {
    std::vector<std::pair<uint32_t, uint64_t>> frames;
    for (int depth = 0; depth < 12; ++depth) {
      state = state * 1664525 + 1013904223;
      frames.emplace_back(program, (state >> 8) % 2000 * 0x100 + 8);
    }
    maker.Sample(0, maker.start_ns + samples++, maker.Stack(frames, Origin::kDom0User), task);
  }
  ASSERT_EQ(Client("export -o " + File("out.html") + " " + maker.Write(File("a.xenprof"))).status, 0);
  const std::string dom = Browse(File("out.html"));
  if (dom.empty()) GTEST_SKIP() << "chromium is not installed: the page is not tried in a browser";
  EXPECT_THAT(dom, HasSubstr("data-ready=\"true\""));
  EXPECT_THAT(dom, HasSubstr("(12,000 samples)"));
}

// Answers one connection as xenprofd would.
class FakeDaemon {
 public:
  FakeDaemon(const std::string& socket_path, std::function<void(int, const proto::ControlEnvelope&)> answer)
      : listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    socket_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    thread_ = std::thread([this, answer = std::move(answer)] {
      const UniqueFd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const auto frame = ReadFrame(connection.get(), absl::Seconds(10));
      proto::ControlEnvelope request;
      if (frame.ok() && request.ParseFromString(frame->bytes)) answer(connection.get(), request);
    });
  }
  ~FakeDaemon() { thread_.join(); }

  static void Send(int connection, const proto::ControlEnvelope& request, proto::ControlEnvelope answer,
                   bool end, const std::vector<int>& descriptors = {}) {
    answer.set_version(1);
    answer.set_id(request.id());
    answer.set_end(end);
    EXPECT_TRUE(WriteFrame(connection, answer.SerializeAsString(), descriptors, absl::Seconds(10)).ok());
  }

 private:
  UniqueFd listener_;
  std::thread thread_;
};

TEST_F(ClientTest, SnapshotCutsWhatTheDaemonHands) {
  const std::string chunk = profile::WriteXenHostChunk(File("daemons.xenprof"));
  for (const std::string ending : {"folded", "xenprof"}) {
    Outcome outcome;
    {
      const std::string socket = File("control-" + ending);
      FakeDaemon daemon(socket, [&](int connection, const proto::ControlEnvelope& request) {
        EXPECT_EQ(request.snapshot_request().future_ns(), 1'500'000'000);
        proto::ControlEnvelope progress;
        progress.mutable_snapshot_progress()->set_elapsed_ns(1'000'000'000);
        progress.mutable_snapshot_progress()->set_total_ns(1'500'000'000);
        progress.mutable_snapshot_progress()->set_samples(4321);
        FakeDaemon::Send(connection, request, progress, false);
        proto::ControlEnvelope answer;
        answer.mutable_snapshot_response()->set_start_ns(5'000'000'000);
        answer.mutable_snapshot_response()->set_end_ns(6'500'000'000);
        answer.mutable_snapshot_response()->add_chunks(chunk);
        const UniqueFd file(open(chunk.c_str(), O_RDONLY | O_CLOEXEC));
        FakeDaemon::Send(connection, request, answer, true, {file.get()});
      });
      outcome = Client(absl::StrCat("--socket ", socket, " snapshot --seconds 1.5 --progress -o ",
                                    File("snap." + ending)));
    }
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "collecting: 1.0 of 1.5 s, 4,321 samples\n");
  }
  EXPECT_EQ(FoldedTotal(ReadAll(File("snap.folded"))), 150);
  EXPECT_EQ(Client("verify " + File("snap.xenprof")).status, 0);
  EXPECT_EQ(FoldedTotal(Client("export --format folded " + File("snap.xenprof")).out), 150);
}

TEST_F(ClientTest, InputsAreTheDaemonsByDefault) {
  std::filesystem::create_directory(File("state"));
  profile::WriteXenHostChunk(File("state/a.xenprof"));
  Outcome outcome;
  {
    FakeDaemon daemon(File("control"), [&](int connection, const proto::ControlEnvelope& request) {
      EXPECT_TRUE(request.has_status_request());
      proto::ControlEnvelope answer;
      answer.mutable_status_response()->set_state_dir(File("state"));
      FakeDaemon::Send(connection, request, answer, true);
    });
    outcome = Client("--socket " + File("control") + " export --format folded");
  }
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(FoldedTotal(outcome.out), kXenHostSamples);
}

TEST_F(ClientTest, WithoutADaemonTheCommandThatStartsItIsNamed) {
  for (const std::string command : {"status", "snapshot --seconds 1", "report"}) {
    const Outcome outcome = Client("--socket " + File("none") + " " + command);
    EXPECT_EQ(outcome.status, 1) << command;
    EXPECT_THAT(outcome.err, HasSubstr("xenprofd is not running"));
    EXPECT_THAT(outcome.err, HasSubstr("systemctl start xenprofd"));
  }
}

}  // namespace
}  // namespace xenprof
