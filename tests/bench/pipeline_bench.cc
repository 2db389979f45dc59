// The hot path by stages: from a ring to a block on disk, and back to a flame graph. Every figure is time per
// sample.
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "benchmark/benchmark.h"
#include "synthetic.h"
#include "xenprof/chunk/writer.h"
#include "xenprof/merge/assembler.h"
#include "xenprof/merge/batch.h"

namespace xenprof::bench {
namespace {

const perf::RecordLayout kLayout = LiveLayout();
constexpr size_t kHandOnSamples = 2048;  // as the daemon's readers do

// Images are made once per shape: making them costs more than reading them.
Synthetic& ImageOf(const benchmark::State& state) {
  static std::map<std::array<int64_t, 3>, std::unique_ptr<Synthetic>> images;
  auto& image = images[{state.range(0), state.range(1), state.range(2)}];
  if (image == nullptr) {
    Shape shape;
    shape.depth = static_cast<int>(state.range(0));
    shape.distinct = static_cast<int>(state.range(1));
    shape.rings = static_cast<int>(state.range(2));
    image = std::make_unique<Synthetic>(shape);
  }
  return *image;
}

void PerSample(benchmark::State& state, const Synthetic& image) {
  state.SetItemsProcessed(state.iterations() * image.samples());
  state.counters["per_sample"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * image.samples(),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void BM_Drain(benchmark::State& state) {
  Synthetic& image = ImageOf(state);
  for (auto _ : state) {
    uint64_t bytes = 0;
    for (size_t ring = 0; ring < image.rings(); ++ring) {
      image.Reader(ring).Drain([&](absl::Span<const uint8_t> record) { bytes += record.size(); });
    }
    benchmark::DoNotOptimize(bytes);
  }
  PerSample(state, image);
}

void BM_Decode(benchmark::State& state) {
  Synthetic& image = ImageOf(state);
  for (auto _ : state) {
    perf::Sample sample;
    for (size_t ring = 0; ring < image.rings(); ++ring) {
      image.Reader(ring).Drain([&](absl::Span<const uint8_t> record) {
        benchmark::DoNotOptimize(perf::DecodeSample(record, kLayout, &sample).ok());
      });
    }
  }
  PerSample(state, image);
}

// To batches: drain, decode, merge, intern within the batch.
void BM_Batch(benchmark::State& state) {
  Synthetic& image = ImageOf(state);
  merge::CpuBatch recycled;
  for (auto _ : state) {
    for (size_t ring = 0; ring < image.rings(); ++ring) {
      merge::BatchBuilder builder(static_cast<uint32_t>(ring), {});
      image.Reader(ring).Drain([&](absl::Span<const uint8_t> record) {
        builder.AddRecord(record, kLayout);
        if (builder.samples() >= kHandOnSamples) recycled = builder.Take(0, std::move(recycled));
      });
    }
  }
  PerSample(state, image);
}

// Everything up to the block in the file, names apart: what steady collection costs.
void BM_WholePath(benchmark::State& state) {
  Synthetic& image = ImageOf(state);
  const std::string folder = std::filesystem::temp_directory_path() / "xenprof-bench";
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/bench.xenprof";
  uint64_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    std::filesystem::remove(path + ".partial");
    chunk::WriterOptions options;
    options.sync = false;
    auto writer = chunk::ChunkWriter::Create(path, proto::Header(), options);
    if (!writer.ok()) {
      state.SkipWithError(std::string(writer.status().message()).c_str());
      return;
    }
    merge::Assembler assembler;
    image.Describe(&assembler);
    state.ResumeTiming();
    for (size_t ring = 0; ring < image.rings(); ++ring) {
      merge::BatchBuilder builder(static_cast<uint32_t>(ring), {});
      image.Reader(ring).Drain([&](absl::Span<const uint8_t> record) {
        builder.AddRecord(record, kLayout);
        if (builder.samples() >= kHandOnSamples)
          assembler.AddBatch(builder.Take(0, assembler.TakeRecycled()));
      });
      assembler.AddBatch(builder.Take(image.end_ns()));
    }
    merge::Window window;
    window.start_ns = image.first_ns();
    assembler.Advance(image.end_ns(), &window);
    if (window.samples() != static_cast<size_t>(image.samples())) state.SkipWithError("samples were lost");
    if (!(*writer)->WriteBlock(window, assembler.tables(), 0).ok())
      state.SkipWithError("the block was not written");
    bytes = (*writer)->bytes();
  }
  PerSample(state, image);
  state.counters["bytes_per_sample"] = static_cast<double>(bytes) / image.samples();
  std::filesystem::remove_all(folder);
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"depth", "distinct", "rings"});
  for (int depth : {5, 20, 60, 127}) benchmark->Args({depth, 1000, 2});
  for (int distinct : {10, 10000, 100000}) benchmark->Args({20, distinct, 2});
  for (int rings : {16, 64, 256}) benchmark->Args({20, 1000, rings});
}
BENCHMARK(BM_Drain)->Apply(Shapes)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Decode)->Apply(Shapes)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Batch)->Apply(Shapes)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_WholePath)->Apply(Shapes)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace xenprof::bench

BENCHMARK_MAIN();
