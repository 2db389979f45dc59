// What a CPU costs in memory beside its ring: as many of the daemon's readers as asked for, on rings in
// memory, each fed its samples once a second and all assembled and written as the daemon does it. Prints
// "anonymous N rings N": KiB resident, and how much of that the rings are.
#include <malloc.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "daemon/cpu_reader.h"
#include "hot_path.h"
#include "xenprof/chunk/writer.h"
#include "xenprof/merge/assembler.h"

namespace xenprof::bench {
namespace {

constexpr size_t kRingBytes = 64 << 10;
constexpr int kHz = 97, kSeconds = 60, kBlockSeconds = 5;

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

long AnonymousKib() {
  long kib = -1;
  char line[256];
  FILE* file = std::fopen("/proc/self/status", "re");
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "RssAnon: %ld", &kib) == 1) break;
  }
  if (file != nullptr) std::fclose(file);
  return kib;
}

struct Cpu {
  explicit Cpu(uint32_t number, daemon::EventFd* recorder) : ring(kRingBytes), reader_ring(ring.MakeRing()) {
    daemon::ReaderOptions options;
    options.cpu = number;
    options.layout = LiveLayout();
    options.pin = false;  // there are not so many CPUs
    reader = std::make_unique<daemon::CpuReader>(&reader_ring, -1, options, recorder);
  }
  perf::testing::FakeRing ring;
  perf::Ring reader_ring;
  std::unique_ptr<daemon::CpuReader> reader;
};

int Main(int cpus) {
  // As the daemon sets the allocator up.
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 2 << 20);
  // Records to feed are made before anything is counted.
  Shape shape;
  shape.rings = 1;
  shape.samples = 10000;
  Synthetic image(shape);
  std::vector<std::vector<uint8_t>> records;
  image.Reader(0).Drain(
      [&](absl::Span<const uint8_t> record) { records.emplace_back(record.begin(), record.end()); });

  TemporaryFolder folder;
  chunk::WriterOptions writer_options;
  writer_options.sync = false;
  auto writer = chunk::ChunkWriter::Create(folder.File("memory.xenprof"), proto::Header(), writer_options);
  if (!writer.ok()) return 1;
  merge::Assembler assembler;
  image.Describe(&assembler);
  daemon::EventFd recorder;
  std::vector<std::unique_ptr<Cpu>> all;
  for (int i = 0; i < cpus; ++i) {
    all.push_back(std::make_unique<Cpu>(i, &recorder));
    if (!all.back()->reader->Start().ok()) return 1;
  }
  std::mt19937_64 random(1);
  merge::Window window;
  window.start_ns = NowNs();
  for (int second = 1; second <= kSeconds; ++second) {
    for (auto& cpu : all) {
      for (int i = 0; i < kHz; ++i) {
        std::vector<uint8_t>& record = records[random() % records.size()];
        const uint64_t now_ns = NowNs();
        std::memcpy(record.data() + 24, &now_ns, sizeof now_ns);  // header, ip, pid and tid, time
        if (!cpu->ring.Write(record)) return 1;
      }
      const uint64_t until_ns = NowNs();
      cpu->reader->RequestDrain();
      while (cpu->reader->counters().drained_until_ns.load(std::memory_order_acquire) < until_ns) {
        const timespec pause = {0, 50'000};
        nanosleep(&pause, nullptr);
      }
      for (merge::CpuBatch batch; cpu->reader->TakeBatch(&batch);) {
        assembler.AddBatch(std::move(batch));
        cpu->reader->Recycle(assembler.TakeRecycled());
      }
    }
    if (second % kBlockSeconds != 0) continue;
    const uint64_t until_ns = NowNs();
    assembler.Advance(until_ns, &window);
    if (window.samples() != static_cast<size_t>(cpus) * kHz * kBlockSeconds) return 1;
    if (!(*writer)->WriteBlock(window, assembler.tables(), 0).ok()) return 1;
    window.Clear();
    window.start_ns = until_ns;
  }
  std::printf("anonymous %ld rings %zu\n", AnonymousKib(), cpus * kRingBytes / 1024);
  return 0;
}

}  // namespace
}  // namespace xenprof::bench

int main(int argc, char** argv) {
  const int cpus = argc == 2 ? std::atoi(argv[1]) : 0;
  if (cpus <= 0) {
    std::fprintf(stderr, "usage: cpu_memory CPUS\n");
    return 2;
  }
  return xenprof::bench::Main(cpus);
}
