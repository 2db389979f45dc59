// Prints when the first sample of a chunk was taken, CLOCK_MONOTONIC_RAW in nanoseconds.
#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "xenprof/chunk/reader.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto reader = xenprof::chunk::ChunkReader::Open(argv[1]);
  if (!reader.ok()) return 1;
  uint64_t first_ns = ~uint64_t{0};
  xenprof::proto::Payload payload;
  while (true) {
    const absl::StatusOr<bool> more = (*reader)->Next(&payload);
    if (!more.ok()) return 1;
    if (!*more) break;
    for (const auto& cpu : payload.block().cpus()) {
      if (cpu.time_step_size() > 0) first_ns = std::min<uint64_t>(first_ns, cpu.first_ns());
    }
  }
  std::printf("%" PRIu64 "\n", first_ns);
  return first_ns == ~uint64_t{0} ? 1 : 0;
}
