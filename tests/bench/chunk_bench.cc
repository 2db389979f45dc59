// What becomes of collected samples: sealing a chunk, reading it, a profile of it, the exports.
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench_main.h"
#include "benchmark/benchmark.h"
#include "hot_path.h"
#include "synthetic.h"
#include "xenprof/chunk/decoder.h"
#include "xenprof/chunk/reader.h"
#include "xenprof/export/folded.h"
#include "xenprof/export/html.h"
#include "xenprof/export/pprof.h"
#include "xenprof/export/text.h"
#include "xenprof/profile/build.h"
#include "xenprof/symbols/live_symbolizer.h"

namespace xenprof::bench {
namespace {

constexpr int kBlocks = 12;

void Fail(benchmark::State& state, const absl::Status& status) {
  state.SkipWithError(std::string(status.message()).c_str());
}
void PerSample(benchmark::State& state, uint64_t samples) {
  state.counters["per_sample"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * samples,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// Where this kernel's text begins; 0 where the system does not say.
uint64_t KernelTextStart() {
  uint64_t start = 0;
  if (FILE* file = std::fopen("/proc/kallsyms", "re")) {
    char line[512], name[256], type = 0;
    uint64_t address = 0;
    while (start == 0 && std::fgets(line, sizeof line, file) != nullptr) {
      if (std::sscanf(line, "%" SCNx64 " %c %255s", &address, &type, name) == 3 &&
          std::string(name) == "_stext")
        start = address;
    }
    std::fclose(file);
  }
  return start;
}

// A minute of 16 CPUs at 97 Hz.
Synthetic& Image() {
  static auto* image = [] {
    Shape shape;
    shape.distinct = 10000;
    shape.rings = 16;
    shape.samples = Samples(16 * 97 * 60);
    shape.step_ns = 1'000'000'000 / 97;
    if (const uint64_t text = KernelTextStart(); text != 0) shape.kernel_text = text;
    return new Synthetic(shape);
  }();
  return *image;
}

proto::Header Header() {
  proto::Header header;
  header.set_start_ns(Image().first_ns());
  return header;
}

class NullSymbolizer : public symbols::Symbolizer {
 public:
  void Note(const symbols::MappingInfo&) override {}
  symbols::Resolved Resolve(const symbols::MappingInfo&, absl::Span<const uint64_t>) override { return {}; }
};

// The kernel's table is this machine's, or a saved one where /proc/kallsyms hides its addresses.
std::unique_ptr<symbols::LiveSymbolizer> RealSymbolizer() {
  symbols::LiveSymbolizerOptions options;
  if (KernelTextStart() == 0) options.kallsyms_path = XENPROF_TEST_DATA "/perf/kallsyms.xz";
  return std::make_unique<symbols::LiveSymbolizer>(options);
}

enum class Names { kNull, kKept, kFirst };

// Time of a chunk: names, trailer, rename.
void BM_Seal(benchmark::State& state, Names names) {
  TemporaryFolder folder;
  HotPath path(&Image(), folder.File("seal.xenprof"));
  NullSymbolizer null;
  std::unique_ptr<symbols::LiveSymbolizer> real;
  for (auto _ : state) {
    state.PauseTiming();
    absl::Status status = path.Prepare(Header());
    if (status.ok()) status = path.Run(kBlocks);
    // The daemon keeps its symbolizer, and that the kernel's table, from chunk to chunk.
    if (names == Names::kFirst || (names == Names::kKept && real == nullptr)) {
      real = RealSymbolizer();
      if (names == Names::kKept) {
        symbols::MappingInfo kernel;
        kernel.kind = FrameKind::kDom0Kernel;
        kernel.name = "[kernel]";
        const uint64_t address = KernelTextStart();
        real->Resolve(kernel, {&address, 1});
      }
    }
    symbols::Symbolizer* symbolizer = &null;
    if (names != Names::kNull) symbolizer = real.get();
    state.ResumeTiming();
    if (status.ok()) status = path.writer().Seal(path.tables(), symbolizer, proto::Trailer::ROTATED_TIME);
    if (!status.ok()) {
      Fail(state, status);
      return;
    }
  }
  state.counters["frames"] = static_cast<double>(path.tables().frames.size());
  if (names != Names::kNull && KernelTextStart() == 0) state.SetLabel("a saved kernel table");
}
BENCHMARK_CAPTURE(BM_Seal, null, Names::kNull)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Seal, kernel_table_kept, Names::kKept)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Seal, kernel_table_read, Names::kFirst)->Unit(benchmark::kMillisecond);

// A sealed chunk, with names; made once.
absl::StatusOr<std::string> SealedChunk() {
  static TemporaryFolder folder;
  static const absl::Status made = [] {
    HotPath path(&Image(), folder.File("sealed.xenprof"));
    absl::Status status = path.Prepare(Header());
    if (status.ok()) status = path.Run(kBlocks);
    if (status.ok()) {
      const auto symbolizer = RealSymbolizer();
      status = path.writer().Seal(path.tables(), symbolizer.get(), proto::Trailer::ROTATED_TIME);
    }
    return status;
  }();
  if (!made.ok()) return made;
  return folder.File("sealed.xenprof");
}

void BM_ReadChunk(benchmark::State& state) {
  const absl::StatusOr<std::string> file = SealedChunk();
  if (!file.ok()) return Fail(state, file.status());
  for (auto _ : state) {
    auto reader = chunk::ChunkReader::Open(*file);
    if (!reader.ok()) return Fail(state, reader.status());
    chunk::ChunkDecoder decoder((*reader)->header());
    proto::Payload payload;
    uint64_t samples = 0, sum = 0;
    while (true) {
      const absl::StatusOr<bool> more = (*reader)->Next(&payload);
      if (!more.ok()) return Fail(state, more.status());
      if (!*more) break;
      if (absl::Status status = decoder.Add(payload); !status.ok()) return Fail(state, status);
      if (!payload.has_block()) continue;
      decoder.ForEachSample(payload.block(),
                            [&](uint32_t, uint64_t time_ns, uint32_t stack, uint32_t, uint32_t) {
                              ++samples;
                              sum += time_ns ^ stack;
                            });
    }
    benchmark::DoNotOptimize(sum);
    if (samples != static_cast<uint64_t>(Image().samples()))
      return Fail(state, absl::InternalError("samples lost"));
  }
  PerSample(state, Image().samples());
}
BENCHMARK(BM_ReadChunk)->Unit(benchmark::kMillisecond);

absl::StatusOr<profile::Profile> Profile(profile::Granularity granularity, bool half) {
  const absl::StatusOr<std::string> file = SealedChunk();
  if (!file.ok()) return file.status();
  std::vector<profile::Input> inputs(1);
  inputs[0].path = *file;
  profile::TimeWindow window;
  if (half) {
    const int64_t first = Image().first_ns(), quarter = (Image().end_ns() - Image().first_ns()) / 4;
    window.clock = profile::TimeWindow::Clock::kMonotonic;
    window.start_ns = first + quarter;
    window.end_ns = first + 3 * quarter;
  }
  profile::BuildOptions options;
  options.granularity = granularity;
  return profile::BuildProfile(std::move(inputs), window, options);
}

// `half`: the middle half of the chunk's time; else all of it.
void BM_Profile(benchmark::State& state, profile::Granularity granularity, bool half) {
  uint64_t samples = 0;
  for (auto _ : state) {
    const auto profile = Profile(granularity, half);
    if (!profile.ok()) return Fail(state, profile.status());
    samples = profile->totals.samples;
  }
  PerSample(state, samples);
  state.counters["samples"] = static_cast<double>(samples);
}
BENCHMARK_CAPTURE(BM_Profile, functions, profile::Granularity::kFunction, false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Profile, functions_half, profile::Granularity::kFunction, true)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Profile, addresses, profile::Granularity::kAddress, false)
    ->Unit(benchmark::kMillisecond);

// The whole chunk's profile, from memory to bytes.
template <typename Export>
void Exported(benchmark::State& state, profile::Granularity granularity, Export exported) {
  const auto profile = Profile(granularity, false);
  if (!profile.ok()) return Fail(state, profile.status());
  size_t bytes = 0;
  for (auto _ : state) {
    exporter::StringOutput output;
    if (absl::Status status = exported(*profile, &output); !status.ok()) return Fail(state, status);
    bytes = output.text().size();
  }
  PerSample(state, profile->totals.samples);
  state.counters["bytes"] = static_cast<double>(bytes);
}
void BM_Text(benchmark::State& state) {
  Exported(state, profile::Granularity::kFunction,
           [](const auto& profile, auto* output) { return exporter::ExportText(profile, {}, output); });
}
void BM_Folded(benchmark::State& state) {
  Exported(state, profile::Granularity::kFunction,
           [](const auto& profile, auto* output) { return exporter::ExportFolded(profile, output); });
}
void BM_Pprof(benchmark::State& state) {
  Exported(state, profile::Granularity::kAddress,
           [](const auto& profile, auto* output) { return exporter::ExportPprof(profile, {}, output); });
}
void BM_Html(benchmark::State& state) {
  Exported(state, profile::Granularity::kFunction,
           [](const auto& profile, auto* output) { return exporter::ExportHtml(profile, {}, output); });
}
BENCHMARK(BM_Text)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Folded)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Pprof)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Html)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace xenprof::bench
