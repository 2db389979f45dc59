// What a trailer says of the blocks before it: gathered alike by whoever writes, recovers and verifies.
#ifndef XENPROF_CHUNK_TOTALS_H_
#define XENPROF_CHUNK_TOTALS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "chunk.pb.h"
#include "xenprof/base/types.h"
#include "xenprof/chunk/decoder.h"

namespace xenprof::chunk {

class Totals {
 public:
  void AddBlock(uint64_t offset, uint64_t start_ns, uint64_t end_ns, int64_t realtime_offset_ns,
                uint64_t samples);
  void AddSamples(uint32_t cpu, uint64_t samples) { cpus_[cpu].samples += samples; }
  // `by_origin[Origin]` samples.
  void AddOrigins(const std::array<uint64_t, kOriginCount>& by_origin);
  void AddIncident(const proto::Incident& incident);
  // All of a block at `offset` of the file, which `decoder` has taken.
  void AddBlock(uint64_t offset, const proto::Block& block, const ChunkDecoder& decoder);

  uint64_t samples() const { return samples_; }
  uint64_t lost() const { return lost_; }
  uint64_t shed() const { return shed_; }
  uint64_t start_ns() const { return start_ns_; }
  uint64_t end_ns() const { return end_ns_; }
  int64_t realtime_offset_ns() const { return realtime_offset_ns_; }
  size_t blocks() const { return blocks_.size(); }

  // All but end, mode and the counts of frames.
  void Fill(proto::Trailer* trailer) const;
  // In what `trailer` differs from these totals, a sentence each.
  std::vector<std::string> Differences(const proto::Trailer& trailer) const;

 private:
  struct Cpu {
    uint64_t samples = 0, lost = 0, throttled_ns = 0, shed = 0;
  };
  struct Block {
    uint64_t offset, start_ns, end_ns, samples;
  };
  uint64_t start_ns_ = 0, end_ns_ = 0, samples_ = 0, lost_ = 0, shed_ = 0;
  int64_t realtime_offset_ns_ = 0;
  std::array<uint64_t, kOriginCount> by_origin_{};
  std::map<uint32_t, Cpu> cpus_;
  std::vector<Block> blocks_;
};

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_TOTALS_H_
