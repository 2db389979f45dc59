// The hot path by stages: from a ring to a block on disk. Every figure is time per sample.
//
// BM_Flat is the figure that must not rise with the number of CPUs: as many samples whatever the number of
// rings, and more of them than a core's share of the last level of cache holds. To compare its rows on a busy
// machine: --benchmark_filter=Flat --benchmark_repetitions=9 --benchmark_enable_random_interleaving=true
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "bench_main.h"
#include "benchmark/benchmark.h"
#include "hot_path.h"
#include "synthetic.h"
#include "xenprof/merge/batch.h"

namespace xenprof::bench {
namespace {

// Making an image costs more than reading it, and keeping them all costs memory.
Synthetic& ImageOf(const Shape& shape) {
  static std::map<std::array<int, 4>, std::unique_ptr<Synthetic>> images;
  const std::array<int, 4> key = {shape.depth, shape.distinct, shape.rings, shape.samples};
  if (images.count(key) == 0 && images.size() >= 4) images.clear();
  auto& image = images[key];
  if (image == nullptr) image = std::make_unique<Synthetic>(shape);
  return *image;
}
Synthetic& ImageOf(const benchmark::State& state, int samples = 200000) {
  Shape shape;
  shape.depth = static_cast<int>(state.range(0));
  shape.distinct = static_cast<int>(state.range(1));
  shape.rings = static_cast<int>(state.range(2));
  shape.samples = Samples(samples);
  return ImageOf(shape);
}

void PerSample(benchmark::State& state, const RingImages& image) {
  state.SetItemsProcessed(state.iterations() * image.samples());
  state.counters["per_sample"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * image.samples(),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void Drain(benchmark::State& state, RingImages& image) {
  for (auto _ : state) {
    uint64_t bytes = 0;
    for (size_t ring = 0; ring < image.rings(); ++ring) {
      image.Reader(ring).Drain([&](absl::Span<const uint8_t> record) { bytes += record.size(); });
    }
    benchmark::DoNotOptimize(bytes);
  }
  PerSample(state, image);
}

void Decode(benchmark::State& state, RingImages& image) {
  const perf::RecordLayout layout = image.layout();
  for (auto _ : state) {
    perf::Sample sample;
    for (size_t ring = 0; ring < image.rings(); ++ring) {
      image.Reader(ring).Drain([&](absl::Span<const uint8_t> record) {
        benchmark::DoNotOptimize(perf::DecodeSample(record, layout, &sample).ok());
      });
    }
  }
  PerSample(state, image);
}

// To batches: drain, decode, merge, intern within the batch.
void Batch(benchmark::State& state, RingImages& image) {
  const perf::RecordLayout layout = image.layout();
  merge::CpuBatch recycled;
  for (auto _ : state) {
    for (size_t ring = 0; ring < image.rings(); ++ring) {
      merge::BatchBuilder builder(static_cast<uint32_t>(ring), image.options());
      image.Reader(ring).Drain([&](absl::Span<const uint8_t> record) {
        builder.AddRecord(record, layout);
        if (builder.samples() >= kHandOnSamples) recycled = builder.Take(0, std::move(recycled));
      });
    }
  }
  PerSample(state, image);
}

// Everything up to the block in the file, names apart: what steady collection costs.
void WholePath(benchmark::State& state, RingImages& image) {
  TemporaryFolder folder;
  HotPath path(&image, folder.File("bench.xenprof"));
  uint64_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    absl::Status status = path.Prepare();
    state.ResumeTiming();
    if (status.ok()) status = path.Run();
    if (!status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
      break;
    }
    bytes = path.writer().bytes();
  }
  PerSample(state, image);
  state.counters["bytes_per_sample"] = static_cast<double>(bytes) / image.samples();
}

void BM_Drain(benchmark::State& state) { Drain(state, ImageOf(state)); }
void BM_Decode(benchmark::State& state) { Decode(state, ImageOf(state)); }
void BM_Batch(benchmark::State& state) { Batch(state, ImageOf(state)); }
void BM_WholePath(benchmark::State& state) { WholePath(state, ImageOf(state)); }
void BM_Flat(benchmark::State& state) {
  Synthetic& image = ImageOf(state, 1 << 19);
  WholePath(state, image);
  state.counters["ring_MB"] = static_cast<double>(image.bytes()) / 1e6;
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"depth", "distinct", "rings"})->Unit(benchmark::kMillisecond);
  for (int depth : {5, 20, 60, 127}) benchmark->Args({depth, 1000, 2});
  for (int distinct : {10, 10000, 100000}) benchmark->Args({20, distinct, 2});
  for (int rings : {16, 64, 256}) benchmark->Args({20, 1000, rings});
}
BENCHMARK(BM_Drain)->Apply(Shapes);
BENCHMARK(BM_Decode)->Apply(Shapes);
BENCHMARK(BM_Batch)->Apply(Shapes);
BENCHMARK(BM_WholePath)->Apply(Shapes);
void Flat(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"depth", "distinct", "rings"})->Unit(benchmark::kMillisecond);
  for (int rings : {2, 16, 64, 256}) benchmark->Args({20, 1000, rings});
}
BENCHMARK(BM_Flat)->Apply(Flat);

// What real rings held: samples of every kind a host with hypervisor stacks gives, and of one without a PMU.
void OfCapture(benchmark::State& state, const char* name, void (*run)(benchmark::State&, RingImages&)) {
  static std::map<std::string, absl::StatusOr<std::unique_ptr<RingImages>>> captures;
  auto capture = captures.find(name);
  if (capture == captures.end()) {
    merge::MergeOptions options;
    options.hypervisor_stacks = std::string(name) == "hv";
    options.software_clock_on_xen = !options.hypervisor_stacks;
    const std::string path = std::string(XENPROF_TEST_DATA "/perf/") + name + ".data.xz";
    capture = captures.emplace(name, Captured(path, Samples(200000), options)).first;
  }
  if (!capture->second.ok()) {
    state.SkipWithError(std::string(capture->second.status().message()).c_str());
    return;
  }
  run(state, **capture->second);
}
BENCHMARK_CAPTURE(OfCapture, hv / drain, "hv", Drain)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(OfCapture, hv / decode, "hv", Decode)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(OfCapture, hv / batch, "hv", Batch)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(OfCapture, hv / whole_path, "hv", WholePath)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(OfCapture, swclock / drain, "swclock", Drain)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(OfCapture, swclock / decode, "swclock", Decode)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(OfCapture, swclock / batch, "swclock", Batch)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(OfCapture, swclock / whole_path, "swclock", WholePath)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace xenprof::bench
