// perf.data in, chunk out: every sample of the captures from a real Xen host, held against perf's own reading
// of them and against a second parser that shares nothing with the importer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lzma.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/import_pipeline.h"
#include "tests/integration/import_support.h"

namespace xenprof {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;

std::string DataPath(const std::string& name) { return absl::StrCat(XENPROF_TEST_DATA, "/perf/", name); }

std::string Unpacked(const std::string& name) {
  std::ifstream in(DataPath(name), std::ios::binary);
  const std::string packed((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::string out(size_t{8} << 20, '\0');
  uint64_t memory = UINT64_MAX;
  size_t in_at = 0, out_size = 0;
  EXPECT_EQ(
      lzma_stream_buffer_decode(&memory, 0, nullptr, reinterpret_cast<const uint8_t*>(packed.data()), &in_at,
                                packed.size(), reinterpret_cast<uint8_t*>(out.data()), &out_size, out.size()),
      LZMA_OK)
      << name;
  out.resize(out_size);
  return out;
}

// -- the second parser
// ------------------------------------------------------------------------------------------------

constexpr uint64_t kMarkers = static_cast<uint64_t>(-4095);
bool InXen(uint64_t a) { return a >= 0xffff800000000000 && a < 0xffff880000000000; }
bool InUser(uint64_t a) { return a < 0x0000800000000000; }

struct RawSample {
  uint32_t cpu = 0, pid = 0, tid = 0;
  uint64_t time = 0, ip = 0;
  int mode = 0;
  std::vector<uint64_t> chain;

  bool guest_mode() const { return mode == 4 || mode == 5; }
  // As the table in the captures' description writes it: mode, where the ip lies, chain.
  std::string Shape() const {
    static const char* const kModes[] = {"?", "K", "U", "H", "GK", "GU"};
    std::string shape = absl::StrCat(kModes[mode], " ",
                                     InXen(ip)      ? "Xen"
                                     : guest_mode() ? (InUser(ip) ? "guest user" : "guest kernel")
                                     : InUser(ip)   ? "user"
                                                    : "kernel",
                                     " ");
    char last = 0;
    int run = 0;
    bool user_part = false;
    const auto flush = [&] {
      if (last == 'x')
        shape += run > 1 ? "X+" : "x";
      else if (last != 0)
        shape += last;
      last = 0;
      run = 0;
    };
    for (uint64_t entry : chain) {
      if (entry >= kMarkers) {
        flush();
        user_part = entry == static_cast<uint64_t>(-512);
        shape += entry == static_cast<uint64_t>(-128)   ? "[K]"
                 : entry == static_cast<uint64_t>(-512) ? "[U]"
                                                        : "[?]";
        continue;
      }
      // A user stack may hold any value.
      const char kind = user_part && entry != ip ? 'u' : InXen(entry) ? 'x' : InUser(entry) ? 'u' : 'k';
      if (kind != last) flush();
      last = kind;
      ++run;
    }
    flush();
    return shape;
  }
};

// All of a file in file mode whose events have the sample type IP|TID|TIME|CALLCHAIN|ID|CPU|PERIOD (plus ADDR
// when `with_addr`), in the order of CPUs and time.
std::vector<RawSample> ParseSamples(const std::string& file, bool with_addr = false) {
  const auto u64 = [&](size_t at) {
    uint64_t value;
    std::memcpy(&value, file.data() + at, 8);
    return value;
  };
  std::vector<RawSample> samples;
  size_t at = u64(40);
  const size_t end = at + u64(48);
  while (at < end) {
    const uint64_t header = u64(at);
    const size_t size = header >> 48;
    if ((header & 0xffffffff) == 9) {
      RawSample s;
      s.mode = static_cast<int>(header >> 32 & 7);
      size_t field = at + 8;
      const auto next = [&] {
        field += 8;
        return u64(field - 8);
      };
      s.ip = next();
      const uint64_t ids = next();
      s.pid = static_cast<uint32_t>(ids);
      s.tid = static_cast<uint32_t>(ids >> 32);
      s.time = next();
      if (with_addr) next();
      next();  // id
      s.cpu = static_cast<uint32_t>(next());
      next();  // period
      for (uint64_t left = next(); left > 0; --left) s.chain.push_back(next());
      samples.push_back(std::move(s));
    }
    at += size;
  }
  std::stable_sort(samples.begin(), samples.end(), [](const RawSample& a, const RawSample& b) {
    return std::tie(a.cpu, a.time) < std::tie(b.cpu, b.time);
  });
  return samples;
}

// -- what perf script printed
// -----------------------------------------------------------------------------------------

struct PrintedSample {
  uint32_t cpu = 0, pid = 0, tid = 0;
  uint64_t time_us = 0;
  std::vector<uint64_t> addresses;
};

// "comm  pid/tid   [cpu] seconds.micros: event: ", then one line a frame, then an empty line.
std::vector<PrintedSample> ParsePrinted(const std::string& text) {
  std::vector<PrintedSample> samples;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.empty()) continue;
    if (line[0] == '\t') {
      samples.back().addresses.push_back(std::stoull(std::string(line), nullptr, 16));
      continue;
    }
    PrintedSample s;
    unsigned long long seconds = 0, micros = 0;
    const size_t bracket = line.find(" [");
    const std::string ids(line.substr(
        line.rfind('/', bracket) == absl::string_view::npos ? 0 : line.rfind(' ', line.rfind('/', bracket))));
    EXPECT_EQ(std::sscanf(ids.c_str(), " %u/%u [%u] %llu.%llu:", &s.pid, &s.tid, &s.cpu, &seconds, &micros),
              5)
        << line;
    s.time_us = seconds * 1000000 + micros;
    samples.push_back(std::move(s));
  }
  std::stable_sort(samples.begin(), samples.end(), [](const PrintedSample& a, const PrintedSample& b) {
    return std::tie(a.cpu, a.time_us) < std::tie(b.cpu, b.time_us);
  });
  return samples;
}

class ImportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    output_ = absl::StrCat(::testing::TempDir(), "/import-test-", getpid(), ".xenprof");
  }
  void TearDown() override { unlink(output_.c_str()); }

  client::ImportOptions Options(const std::string& input) const {
    client::ImportOptions options;
    options.input = input;
    options.output = output_;
    options.producer = "import_test";
    return options;
  }
  client::ImportOptions HvOptions(const std::string& name) const {
    client::ImportOptions options = Options(DataPath(name));
    options.kallsyms = DataPath("kallsyms.xz");
    options.xen_symbols = {DataPath("xensyms.xz")};
    return options;
  }

  Chunk ReadChunk() const { return ReadChunkFile(output_); }

  std::string output_;
};

bool IsDom0(FrameKind kind) { return kind == FrameKind::kDom0Kernel || kind == FrameKind::kDom0User; }

// What a sample of a host with hypervisor stacks must come out as, by mode and ip alone.
std::set<Origin> AllowedOrigins(const RawSample& raw) {
  if (!raw.guest_mode()) {
    if (InXen(raw.ip)) return {Origin::kXenForDom0};
    return {InUser(raw.ip) ? Origin::kDom0User : Origin::kDom0Kernel};
  }
  if (InXen(raw.ip)) return {Origin::kXenIdle, Origin::kXenForGuest};
  return {raw.mode == 4 ? Origin::kGuestKernel : Origin::kGuestUser};
}

// Samples, origins and kinds of frames of one capture against the second parser. `software_clock`: a sample
// with a guest's mode has only its markers to go by.
void CompareWithRaw(const std::vector<RawSample>& raw, const Chunk& chunk, bool software_clock = false) {
  ASSERT_EQ(chunk.samples.size(), raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    const RawSample& r = raw[i];
    const ChunkSample& c = chunk.samples[i];
    ASSERT_EQ(c.cpu, r.cpu);
    ASSERT_EQ(c.time, r.time);
    EXPECT_EQ(c.pid, r.pid);
    if (r.pid != 0) {
      EXPECT_EQ(c.tid, r.tid);
    }
    if (software_clock && r.guest_mode()) {
      const bool in_kernel = !r.chain.empty() && r.chain[0] == static_cast<uint64_t>(-128);
      EXPECT_EQ(c.origin, in_kernel ? Origin::kDom0Kernel : Origin::kDom0User) << r.Shape();
      EXPECT_EQ(c.flags, kStackGuessedOrigin);
      EXPECT_TRUE(c.frames.empty());
      continue;
    }
    EXPECT_TRUE(AllowedOrigins(r).contains(c.origin)) << r.Shape() << " came out as " << OriginName(c.origin);
    ASSERT_FALSE(c.frames.empty()) << r.Shape();
    // The leaf is the sampled address.
    if (!c.frames[0].is_file) {
      EXPECT_EQ(c.frames[0].address, r.ip) << r.Shape();
    }
    if (c.origin == Origin::kGuestKernel || c.origin == Origin::kGuestUser ||
        c.origin == Origin::kXenForGuest || c.origin == Origin::kXenIdle) {
      for (const ChunkFrame& frame : c.frames) {
        EXPECT_FALSE(IsDom0(frame.kind)) << r.Shape() << ": a dom0 frame in " << OriginName(c.origin);
      }
    }
    for (const ChunkFrame& frame : c.frames) {
      EXPECT_EQ(frame.kind == FrameKind::kHypervisor, !frame.is_file && InXen(frame.address)) << r.Shape();
    }
  }
}

TEST_F(ImportTest, EverySampleOfTheHypervisorCapture) {
  const auto result = client::ImportPerfData(HvOptions("hv.data.xz"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples, 2586u);
  EXPECT_EQ(result->event, "cycles");
  EXPECT_EQ(result->bad_records, 0u);
  EXPECT_EQ(result->mode, ModeKind::kXenStacks);
  const Chunk chunk = ReadChunk();
  EXPECT_EQ(chunk.header.mode().kind(), proto::Mode::XEN_STACKS);
  EXPECT_EQ(chunk.header.host().kernel_release(), "6.12.117");
  EXPECT_EQ(chunk.header.event().frequency_hz(), 197u);
  EXPECT_EQ(chunk.header.source(), proto::Header::IMPORTED);
  EXPECT_EQ(chunk.header.source_name(), "hv.data.xz");
  EXPECT_EQ(chunk.trailer.samples(), 2586u);

  const std::vector<RawSample> raw = ParseSamples(Unpacked("hv.data.xz"));
  CompareWithRaw(raw, chunk);

  // The shapes the capture is described by: the second parser sees what the description says.
  std::map<std::string, int> shapes;
  std::map<std::string, std::map<Origin, int>> origins;
  for (size_t i = 0; i < raw.size(); ++i) {
    ++shapes[raw[i].Shape()];
    ++origins[raw[i].Shape()][chunk.samples[i].origin];
  }
  const std::map<std::string, int> described = {{"U user [U]u", 648},
                                                {"K kernel [K]k[U]u", 537},
                                                {"GK guest kernel [K][U]", 435},
                                                {"GK Xen [K]X+[U]", 205},
                                                {"K Xen [K]X+k[U]u", 167},
                                                {"U Xen [U]x", 76},
                                                {"GU guest user [U]", 73},
                                                {"K kernel [K]k", 66},
                                                {"GK guest kernel [K]", 79},
                                                {"GK Xen [K]X+", 123},
                                                {"GK Xen [K]x[U]", 43},
                                                {"GU Xen [U]", 40},
                                                {"K Xen [K]xk[U]u", 27},
                                                {"K Xen [K]X+u[U]u", 12},
                                                {"K Xen [K]X+k", 20},
                                                {"K Xen [K]xu[U]u", 9},
                                                {"GU Xen ", 8},
                                                {"GU guest user ", 8},
                                                {"GK Xen [K]x", 5}};
  for (const auto& [shape, count] : described) {
    // Five samples are described as "one of the above shapes" only.
    EXPECT_GE(shapes[shape], count) << shape;
    EXPECT_LE(shapes[shape], count + 5) << shape;
  }
  EXPECT_EQ(origins["U user [U]u"][Origin::kDom0User], shapes["U user [U]u"]);
  EXPECT_EQ(origins["U Xen [U]x"][Origin::kXenForDom0], shapes["U Xen [U]x"]);
  EXPECT_EQ(origins["K Xen [K]X+k[U]u"][Origin::kXenForDom0], shapes["K Xen [K]X+k[U]u"]);
  for (const auto& [shape, by_origin] : origins) {
    std::cout << shape << ":";
    for (const auto& [origin, count] : by_origin) std::cout << " " << OriginName(origin) << " " << count;
    std::cout << "\n";
  }
}

// Xen's idle loop is told from Xen that serves a guest by its own frames.
TEST_F(ImportTest, IdleIsToldFromGuests) {
  ASSERT_TRUE(client::ImportPerfData(HvOptions("hv.data.xz")).ok());
  const Chunk chunk = ReadChunk();
  int idle = 0, for_guest = 0;
  for (const ChunkSample& s : chunk.samples) {
    const bool in_idle_loop = std::any_of(s.frames.begin(), s.frames.end(), [](const ChunkFrame& frame) {
      return frame.kind == FrameKind::kHypervisor && absl::StrContains(frame.function, "idle");
    });
    if (s.origin == Origin::kXenIdle) {
      ++idle;
      EXPECT_TRUE(in_idle_loop);
    }
    if (s.origin == Origin::kXenForGuest) {
      ++for_guest;
      EXPECT_FALSE(in_idle_loop);
    }
  }
  EXPECT_GT(idle, 50);
  EXPECT_GT(for_guest, 50);
  std::cout << "idle " << idle << ", for guests " << for_guest << "\n";
}

// Every address that perf printed, in perf's order, is in the chunk, and nothing else is, but for: the
// sampled address put in front where the kernel left it out, and the user address that the kernel stores
// twice when Xen interrupted dom0's user mode.
TEST_F(ImportTest, AddressesAreThoseOfPerfScript) {
  client::ImportOptions all = HvOptions("hv.data.xz");
  all.keep_unmapped_callers = true;
  ASSERT_TRUE(client::ImportPerfData(all).ok());
  const Chunk chunk = ReadChunk();
  const std::vector<RawSample> raw = ParseSamples(Unpacked("hv.data.xz"));
  const std::vector<PrintedSample> printed = ParsePrinted(Unpacked("hv.txt.xz"));
  ASSERT_EQ(printed.size(), 1563u);
  ASSERT_EQ(chunk.samples.size(), raw.size());

  size_t p = 0;
  uint64_t equal = 0, repeats_dropped = 0, leaves_added = 0, private_frames = 0, frames = 0;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i].guest_mode()) continue;  // perf script was not told of guests
    ASSERT_LT(p, printed.size());
    const PrintedSample& want = printed[p++];
    const ChunkSample& have = chunk.samples[i];
    ASSERT_EQ(have.cpu, want.cpu);
    ASSERT_EQ(have.time / 1000, want.time_us);
    ASSERT_EQ(raw[i].tid, want.tid);
    // perf prints files' addresses as offsets, and so does it for [vdso], which is no file here.
    const auto same = [&](uint64_t address, const ChunkFrame& frame) {
      if (address == frame.address) return true;
      if (frame.is_file || frame.kind != FrameKind::kDom0User || frame.mapping != "[vdso]") return false;
      return address < 0x4000 && address % 4096 == frame.address % 4096;
    };
    size_t w = 0;
    bool good = true;
    for (size_t f = 0; f < have.frames.size() && good; ++f) {
      const ChunkFrame& frame = have.frames[f];
      ++frames;
      if (frame.kind == FrameKind::kDom0User && !frame.is_file) ++private_frames;
      if (w < want.addresses.size() && same(want.addresses[w], frame)) {
        ++w;
        continue;
      }
      // The leaf that the chain lacks.
      if (f == 0 && (raw[i].chain.empty() || raw[i].chain[raw[i].chain[0] >= kMarkers] != raw[i].ip)) {
        ++leaves_added;
        continue;
      }
      // A user address inside the kernel part: perf finds no mapping for it and prints it as it is; then it
      // comes again, as an offset.
      if (w + 1 < want.addresses.size() && InUser(want.addresses[w]) && same(want.addresses[w + 1], frame) &&
          std::count(raw[i].chain.begin(), raw[i].chain.end(), want.addresses[w]) == 2) {
        ++repeats_dropped;
        w += 2;
        continue;
      }
      good = false;
    }
    if (good && w == want.addresses.size()) {
      ++equal;
      continue;
    }
    std::ostringstream text;
    text << std::hex;
    for (uint64_t address : want.addresses) text << " " << address;
    text << "\n imported:";
    for (const ChunkFrame& frame : have.frames) text << " " << frame.address << "(" << frame.mapping << ")";
    ADD_FAILURE() << raw[i].Shape() << " at " << raw[i].time << "\n printed:" << text.str();
  }
  EXPECT_EQ(p, printed.size());
  EXPECT_EQ(equal, 1563u);
  uint64_t expected_repeats = 0;
  uint64_t markers = 0;
  for (const RawSample& r : raw) {
    for (uint64_t entry : r.chain) markers += entry >= kMarkers;
    if (!r.guest_mode()) expected_repeats += absl::StrContains(r.Shape(), "u[U]u");
  }
  EXPECT_EQ(repeats_dropped, expected_repeats);
  std::cout << frames << " frames of " << equal << " samples as printed; dropped: " << repeats_dropped
            << " user addresses stored twice, " << markers
            << " context markers (all samples); added: " << leaves_added
            << " sampled addresses that the chain lacked; " << private_frames
            << " user frames outside of files\n";
}

// What an import leaves out unless told to keep it: of the same stacks, the callers from the first one on at
// which the process has nothing mapped.
TEST_F(ImportTest, UnmappedCallersAreOneFrame) {
  client::ImportOptions all = HvOptions("hv.data.xz");
  all.keep_unmapped_callers = true;
  ASSERT_TRUE(client::ImportPerfData(all).ok());
  const Chunk kept = ReadChunk();
  ASSERT_TRUE(client::ImportPerfData(HvOptions("hv.data.xz")).ok());
  const Chunk cut = ReadChunk();
  ASSERT_EQ(cut.samples.size(), kept.samples.size());
  uint64_t stacks = 0, frames = 0;
  for (size_t i = 0; i < cut.samples.size(); ++i) {
    const std::vector<ChunkFrame>& whole = kept.samples[i].frames;
    const std::vector<ChunkFrame>& have = cut.samples[i].frames;
    size_t first = 0;
    while (first < whole.size() && !(whole[first].mapping == "[unknown]" && first > 0 &&
                                     whole[first - 1].kind == FrameKind::kDom0User)) {
      ++first;
    }
    ASSERT_EQ(cut.samples[i].origin, kept.samples[i].origin);
    ASSERT_EQ(have.size(), std::min(whole.size(), first + 1)) << "sample " << i;
    for (size_t f = 0; f < first; ++f) ASSERT_EQ(have[f].address, whole[f].address);
    if (first == whole.size()) continue;
    EXPECT_EQ(have.back().mapping, "[unknown]");
    EXPECT_EQ(have.back().address, 0u);
    ++stacks;
    frames += whole.size() - first;
  }
  EXPECT_GT(stacks, 0u);
  std::cout << stacks << " stacks end where nothing is mapped; " << frames << " such frames\n";
}

// The guests' samples, which perf script left out: the sampled address and Xen's frames, nothing else.
TEST_F(ImportTest, GuestSamplesHoldWhatTheRecordHolds) {
  ASSERT_TRUE(client::ImportPerfData(HvOptions("hv.data.xz")).ok());
  const Chunk chunk = ReadChunk();
  const std::vector<RawSample> raw = ParseSamples(Unpacked("hv.data.xz"));
  ASSERT_EQ(chunk.samples.size(), raw.size());
  int compared = 0;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (!raw[i].guest_mode()) continue;
    std::vector<uint64_t> want = {raw[i].ip};
    bool first = true;
    for (uint64_t entry : raw[i].chain) {
      if (entry >= kMarkers) continue;
      if (!(first && entry == raw[i].ip)) want.push_back(entry);
      first = false;
    }
    std::vector<uint64_t> have;
    for (const ChunkFrame& frame : chunk.samples[i].frames) have.push_back(frame.address);
    EXPECT_EQ(have, want) << raw[i].Shape();
    ++compared;
  }
  EXPECT_EQ(compared, 1023);
}

TEST_F(ImportTest, OneStackFromXenThroughTheKernelIntoAProgram) {
  ASSERT_TRUE(client::ImportPerfData(HvOptions("hv.data.xz")).ok());
  const Chunk chunk = ReadChunk();
  uint64_t whole = 0, named = 0, xen_frames = 0, xen_named = 0, kernel_frames = 0, kernel_named = 0;
  for (const ChunkSample& s : chunk.samples) {
    bool xen = false, kernel = false, user = false;
    for (const ChunkFrame& frame : s.frames) {
      if (frame.kind == FrameKind::kHypervisor) {
        ++xen_frames;
        xen_named += !frame.function.empty();
        xen = true;
      } else if (frame.kind == FrameKind::kDom0Kernel) {
        ++kernel_frames;
        kernel_named += !frame.function.empty();
        kernel = true;
      } else if (frame.kind == FrameKind::kDom0User) {
        user = true;
      }
    }
    whole += xen && kernel && user;
    named += std::any_of(s.frames.begin(), s.frames.end(),
                         [](const ChunkFrame& frame) { return frame.function == "pmu_msr_write"; });
  }
  EXPECT_GE(whole, 167u + 27u);
  EXPECT_GT(named, 0u);
  EXPECT_EQ(xen_named, xen_frames);
  EXPECT_EQ(kernel_named, kernel_frames);
}

// Without any symbols not one sample is lost, and what only symbols can tell is told as unknown.
TEST_F(ImportTest, WithoutSymbols) {
  const auto result = client::ImportPerfData(Options(DataPath("hv.data.xz")));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples, 2586u);
  EXPECT_EQ(result->samples_by_origin[static_cast<size_t>(Origin::kXenIdle)], 0u);
  EXPECT_THAT(result->warnings, ::testing::Contains(HasSubstr("--xen-symbols")));
  EXPECT_EQ(result->mode, ModeKind::kXenStacks);
}

TEST_F(ImportTest, StackCopiesAreSteppedOver) {
  const auto result = client::ImportPerfData(HvOptions("hv-dwarf.data.xz"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples, 707u);
  CompareWithRaw(ParseSamples(Unpacked("hv-dwarf.data.xz"), /*with_addr=*/true), ReadChunk());
}

TEST_F(ImportTest, SoftwareClockSeesDom0Only) {
  for (const client::ImportOptions& options :
       {HvOptions("swclock.data.xz"), Options(DataPath("swclock.data.xz"))}) {
    const auto result = client::ImportPerfData(options);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->samples, 1005u);
    EXPECT_EQ(result->event, "cpu-clock");
    EXPECT_EQ(result->mode, ModeKind::kDom0Only);
    EXPECT_THAT(result->mode_reason, HasSubstr("Xen"));
    uint64_t dom0 = result->samples_by_origin[static_cast<size_t>(Origin::kDom0User)] +
                    result->samples_by_origin[static_cast<size_t>(Origin::kDom0Kernel)];
    EXPECT_EQ(dom0, 1005u);
    const Chunk chunk = ReadChunk();
    EXPECT_EQ(chunk.header.mode().kind(), proto::Mode::DOM0_ONLY);
    const std::vector<RawSample> raw = ParseSamples(Unpacked("swclock.data.xz"));
    CompareWithRaw(raw, chunk, /*software_clock=*/true);
    // The PMU had sampled a guest on CPU 0 earlier: mode and address of that are in every sample of this
    // timer since.
    const auto stale =
        std::count_if(raw.begin(), raw.end(), [](const RawSample& r) { return r.guest_mode(); });
    EXPECT_EQ(stale, 504);
    EXPECT_TRUE(std::all_of(raw.begin(), raw.end(), [](const RawSample& r) {
      return !r.guest_mode() || r.ip == 0xffffffff810294cf;
    }));
    EXPECT_THAT(result->warnings, ::testing::Contains(HasSubstr("504 samples show a guest")));
  }
}

TEST_F(ImportTest, Refusals) {
  const auto message = [](const client::ImportOptions& options) {
    const auto result = client::ImportPerfData(options);
    EXPECT_FALSE(result.ok());
    return std::string(result.status().message());
  };
  EXPECT_THAT(message(Options("/nowhere/perf.data")), HasSubstr("/nowhere/perf.data"));
  EXPECT_THAT(message(Options(DataPath("kallsyms.xz"))), HasSubstr("no perf.data file"));
  client::ImportOptions options = HvOptions("hv.data.xz");
  options.event = "instructions";
  EXPECT_THAT(message(options), HasSubstr("has no event instructions; it has cycles:HG"));
  options = HvOptions("hv.data.xz");
  options.output = "/nowhere/out.xenprof";
  EXPECT_THAT(message(options), HasSubstr("/nowhere"));
  EXPECT_NE(access(output_.c_str(), F_OK), 0);
  EXPECT_NE(access(absl::StrCat(output_, ".partial").c_str(), F_OK), 0);
}

// A recording cut off at any place: what is whole of it comes out, and that something is missing is in the
// chunk.
TEST_F(ImportTest, CutRecordings) {
  const std::string whole = Unpacked("hv.data.xz");
  const std::string cut_path = absl::StrCat(::testing::TempDir(), "/import-test-cut-", getpid(), ".data");
  uint64_t last = 0;
  for (size_t size : {size_t{100000}, size_t{250001}, size_t{400000}, whole.size() - 1}) {
    std::ofstream(cut_path, std::ios::binary).write(whole.data(), static_cast<std::streamsize>(size));
    const auto result = client::ImportPerfData(Options(cut_path));
    if (!result.ok()) {
      EXPECT_THAT(std::string(result.status().message()), HasSubstr("holds no samples"));
      continue;
    }
    EXPECT_FALSE(result->warnings.empty());
    EXPECT_GE(result->samples, last);
    last = result->samples;
    const Chunk chunk = ReadChunk();
    EXPECT_EQ(chunk.samples.size(), result->samples);
    ASSERT_GT(chunk.header.notes_size(), 0);
    EXPECT_EQ(chunk.header.notes(0).severity(), proto::Note::WARNING);
  }
  EXPECT_EQ(last, 2586u);
  unlink(cut_path.c_str());
}

// Whatever is wrong with a recording: an error, or a chunk that is good and holds as many samples as were
// told.
TEST_F(ImportTest, DamagedRecordings) {
  const std::string whole = Unpacked("hv.data.xz");
  const std::string path = absl::StrCat(::testing::TempDir(), "/import-test-damaged-", getpid(), ".data");
  std::mt19937_64 random(4);
  int imported = 0;
  for (int round = 0; round < 60; ++round) {
    std::string bytes = whole;
    const size_t end = round % 3 == 0 ? 424 : bytes.size();
    for (int flips = 1 + static_cast<int>(random() % 40); flips > 0; --flips) {
      bytes[random() % end] ^= static_cast<char>(1 << random() % 8);
    }
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const auto result = client::ImportPerfData(Options(path));
    if (!result.ok()) {
      EXPECT_FALSE(result.status().message().empty());
      EXPECT_NE(access(absl::StrCat(output_, ".partial").c_str(), F_OK), 0);
      continue;
    }
    ++imported;
    const auto report = chunk::Verify(output_);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->sealed);
    EXPECT_TRUE(report->problems.empty()) << round << ": " << report->problems[0].reason;
    EXPECT_EQ(report->samples, result->samples);
  }
  EXPECT_GT(imported, 20);
  unlink(path.c_str());
}

struct Ran {
  int status = -1;
  std::string output;  // of both kinds
};

Ran RunXenprofctl(const std::string& arguments) {
  Ran ran;
  FILE* pipe = popen(absl::StrCat(XENPROFCTL " ", arguments, " 2>&1").c_str(), "r");
  char buffer[4096];
  size_t got;
  while ((got = fread(buffer, 1, sizeof buffer, pipe)) > 0) ran.output.append(buffer, got);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) ran.status = WEXITSTATUS(status);
  return ran;
}

TEST_F(ImportTest, TheCommand) {
  const std::string symbols =
      absl::StrCat(" --kallsyms ", DataPath("kallsyms.xz"), " --xen-symbols ", DataPath("xensyms.xz"));
  Ran ran = RunXenprofctl(absl::StrCat("import ", DataPath("hv.data.xz"), symbols, " -o ", output_));
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.output, HasSubstr("2,586 samples of cycles"));
  EXPECT_THAT(ran.output, HasSubstr("mode: xen stacks"));
  EXPECT_THAT(ran.output, HasSubstr("648  dom0_user"));
  EXPECT_EQ(ReadChunk().samples.size(), 2586u);

  // Again, over the chunk that is there, through a pipe, for a script.
  ran = RunXenprofctl(absl::StrCat("import - --json -o ", output_, " < ", DataPath("swclock.data.xz")));
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.output, HasSubstr("\"samples\": 1005"));
  EXPECT_THAT(ran.output, HasSubstr("\"mode\": \"dom0 only\""));
  EXPECT_EQ(ReadChunk().header.source_name(), "standard input");

  EXPECT_EQ(RunXenprofctl("import").status, 2);
  EXPECT_EQ(RunXenprofctl(absl::StrCat("import ", DataPath("hv.data.xz"))).status, 2);
  EXPECT_EQ(RunXenprofctl(absl::StrCat("import ", DataPath("hv.data.xz"), " -o -")).status, 2);
  ran = RunXenprofctl(absl::StrCat("import /nowhere/perf.data -o ", output_));
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.output, HasSubstr("xenprofctl: /nowhere/perf.data: No such file or directory"));
}

}  // namespace
}  // namespace xenprof
