// Brings the tables of several chunks into one, only as far as they are used.
#ifndef XENPROF_CHUNK_TABLE_MERGER_H_
#define XENPROF_CHUNK_TABLE_MERGER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "chunk.pb.h"
#include "xenprof/chunk/decoder.h"
#include "xenprof/merge/window.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::chunk {

class TableMerger {
 public:
  TableMerger();

  // The tables of another chunk come in: indexes given from now on are of this decoder, which must outlive
  // the merger.
  void Begin(const ChunkDecoder* decoder);
  // Once the decoder has its first block: the entries with a fixed index, whose names are a chunk's own.
  void TakeFixedEntries();
  // The new index of an entry of that decoder; adds it, and what it refers to, at first use. Equal entries of
  // several chunks become one.
  uint32_t Stack(uint32_t index);
  uint32_t Task(uint32_t index);
  uint32_t Domain(uint32_t index);

  const merge::Tables& tables() const { return tables_; }
  const std::vector<proto::Domain>& domains() const { return domains_; }

  // Names and lines the chunks brought, for the new tables. Valid as long as the merger.
  symbols::Symbolizer* names() { return &names_; }

 private:
  static constexpr uint32_t kUnset = ~0u;

  // Asks every chunk that has the mapping.
  class CarriedNames : public symbols::Symbolizer {
   public:
    void Note(const symbols::MappingInfo&) override {}
    symbols::Resolved Resolve(const symbols::MappingInfo& mapping,
                              absl::Span<const uint64_t> addresses) override;
    struct Source {
      const ChunkDecoder* decoder;
      uint32_t mapping;
    };
    absl::flat_hash_map<std::string, std::vector<Source>> sources;  // by MappingKey
  };

  uint32_t Mapping(uint32_t index);
  uint32_t Frame(uint32_t index);
  uint32_t Node(uint32_t index);

  const ChunkDecoder* decoder_ = nullptr;
  std::vector<uint32_t> new_mapping_, new_task_, new_domain_, new_frame_, new_node_, new_stack_;
  std::vector<uint32_t> path_;  // scratch

  merge::Tables tables_;
  std::vector<proto::Domain> domains_;
  absl::flat_hash_map<std::string, uint32_t> mapping_ids_, task_ids_, domain_ids_;
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, uint32_t> frame_ids_, node_ids_, stack_ids_;
  CarriedNames names_;
};

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_TABLE_MERGER_H_
