// A chunk as the importer's tests look at it: each sample with its frames.
#ifndef XENPROF_TESTS_INTEGRATION_IMPORT_SUPPORT_H_
#define XENPROF_TESTS_INTEGRATION_IMPORT_SUPPORT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "xenprof/base/types.h"
#include "xenprof/chunk/decoder.h"
#include "xenprof/chunk/reader.h"

namespace xenprof {

struct ChunkFrame {
  FrameKind kind;
  uint64_t address;
  bool is_file;
  std::string mapping;
  std::string function;
};
struct ChunkSample {
  uint32_t cpu, pid, tid;
  uint64_t time;
  Origin origin;
  uint8_t flags;
  std::string comm;
  std::vector<ChunkFrame> frames;  // leaf first
};
struct Chunk {
  proto::Header header;
  proto::Trailer trailer;
  std::vector<ChunkSample> samples;  // by CPU and time
};

inline Chunk ReadChunkFile(const std::string& path) {
  Chunk chunk;
  auto reader = chunk::ChunkReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return chunk;
  chunk.header = (*reader)->header();
  chunk::ChunkDecoder decoder((*reader)->header());
  std::vector<std::tuple<uint32_t, uint64_t, uint32_t, uint32_t>> rows;
  proto::Payload payload;
  while (true) {
    auto got = (*reader)->Next(&payload);
    EXPECT_TRUE(got.ok()) << got.status();
    if (!got.ok() || !*got) break;
    const absl::Status status = decoder.Add(payload);
    EXPECT_TRUE(status.ok()) << status;
    if (payload.has_trailer()) chunk.trailer = payload.trailer();
    if (!payload.has_block()) continue;
    decoder.ForEachSample(payload.block(), [&](uint32_t cpu, uint64_t time, uint32_t stack, uint32_t task,
                                               uint32_t) { rows.emplace_back(cpu, time, stack, task); });
  }
  const merge::Tables& tables = decoder.tables();
  for (const auto& [cpu, time, stack, task] : rows) {
    ChunkSample s{cpu,
                  tables.tasks[task].pid,
                  tables.tasks[task].tid,
                  time,
                  tables.stacks[stack].origin,
                  tables.stacks[stack].flags,
                  tables.tasks[task].comm,
                  {}};
    decoder.ForEachFrame(stack, [&](uint32_t frame, bool is_leaf) {
      const merge::Frame& f = tables.frames[frame];
      const merge::Mapping& mapping = tables.mappings[f.mapping];
      s.frames.push_back(
          {mapping.kind, f.address, mapping.is_file, mapping.name,
           std::string(decoder.FunctionFor(f.mapping, decoder.LookupAddress(frame, is_leaf)).name)});
    });
    chunk.samples.push_back(std::move(s));
  }
  std::stable_sort(chunk.samples.begin(), chunk.samples.end(),
                   [](const ChunkSample& a, const ChunkSample& b) {
                     return std::tie(a.cpu, a.time) < std::tie(b.cpu, b.time);
                   });
  return chunk;
}

}  // namespace xenprof

#endif  // XENPROF_TESTS_INTEGRATION_IMPORT_SUPPORT_H_
