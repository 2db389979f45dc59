// From a chunk's payloads to checked tables and samples: the one place that trusts no id of a file.
#ifndef XENPROF_CHUNK_DECODER_H_
#define XENPROF_CHUNK_DECODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "chunk.pb.h"
#include "xenprof/chunk/reference.h"
#include "xenprof/merge/window.h"

namespace xenprof::chunk {

// Name of the mapping, and comm of the task, that stand for entries whose block was lost.
inline constexpr absl::string_view kLostInDamage = "[lost in damage]";

// File ids to indexes of the tables here. The same, until a lost block leaves a hole (salvage).
class IdMap {
 public:
  static constexpr uint32_t kNone = ~0u;
  // Where `zero_is_fixed`, id 0 is at index 0 from the start.
  explicit IdMap(bool zero_is_fixed) : segments_{{0, zero_is_fixed ? 1u : 0u, 0}} {}
  // The index of `id`, or kNone.
  uint32_t Find(uint32_t id) const {
    const Segment& last = segments_.back();
    if (id >= last.first && id < last.end) return last.index + (id - last.first);
    return segments_.size() == 1 ? kNone : FindEarlier(id);
  }
  uint32_t next() const { return next_; }  // the id the next entry must have
  // `count` entries from id `first` on (not less than next()) are at `index` and behind.
  void Add(uint32_t first, uint32_t count, uint32_t index);

 private:
  struct Segment {
    uint32_t first, end, index;
  };
  uint32_t FindEarlier(uint32_t id) const;
  std::vector<Segment> segments_;
  uint32_t next_ = 0;
};

// The times of one CPU's samples in a block, one after the other. As many as there are in time_step;
// `time_low` must have the length that needs.
class TimeDecoder {
 public:
  explicit TimeDecoder(const proto::CpuSamples& cpu)
      : steps_(cpu.time_step().data()),
        low_(reinterpret_cast<const uint8_t*>(cpu.time_low().data())),
        second_low_(low_ + cpu.time_step_size()),
        low_bytes_(cpu.time_low_bytes()),
        usual_ns_(cpu.usual_step_ns()),
        time_ns_(cpu.first_ns() - cpu.usual_step_ns()) {}
  uint64_t Next() {
    uint64_t delta = static_cast<uint64_t>(*steps_++) << (8 * low_bytes_);
    if (low_bytes_ > 0) delta += *low_++;
    if (low_bytes_ > 1) delta += static_cast<uint64_t>(*second_low_++) << 8;
    return time_ns_ += usual_ns_ + delta;
  }

 private:
  const int64_t* steps_;
  const uint8_t* low_;
  const uint8_t* second_low_;
  const uint32_t low_bytes_;
  const uint64_t usual_ns_;
  uint64_t time_ns_;
};

// Accumulates the dictionaries of one chunk in file order. In tables(), every reference is in range and a
// node's parent comes before it, so that walking a stack ends. Not thread safe; const calls may run side by
// side.
//
//   ChunkDecoder decoder(reader->header(), {.salvage = ...});
//   reader->SetWindow(start_ns, end_ns);   // blocks outside come without samples, cheaply
//   for (proto::Payload payload; reader->Next(&payload);)
//     decoder.Add(payload), then decoder.ForEachSample(payload.block(), ...) if it is a block
class ChunkDecoder {
 public:
  struct Options {
    // A block that refers to entries of a lost block is taken, those references lead to an entry named
    // kLostInDamage: samples stay as many as they are. Otherwise that is an error.
    bool salvage = false;
  };
  explicit ChunkDecoder(const proto::Header& header);
  ChunkDecoder(const proto::Header& header, Options options);

  // Any payload behind the header, in file order. InvalidArgument says what contradicts itself, without the
  // file's name and offset. After an error a block's dictionary is in either whole or not at all, none of its
  // samples may be visited, and in salvage mode the next payload may follow.
  absl::Status Add(const proto::Payload& payload);
  absl::Status AddBlock(const proto::Block& block);
  absl::Status AddSymbols(const proto::Symbols& symbols);

  // Calls visit(uint32_t cpu, uint64_t time_ns, uint32_t stack, uint32_t task, uint32_t domain) for each
  // sample of `block`, which AddBlock has taken without an error: CPU by CPU, in the order written, which is
  // that of time. Ids are indexes of the tables here. Times are in [block.start_ns, block.end_ns).
  template <typename Visitor>
  void ForEachSample(const proto::Block& block, Visitor&& visit) const;

  // Calls visit(uint32_t frame, bool is_leaf) for each frame of a stack, innermost first.
  template <typename Visitor>
  void ForEachFrame(uint32_t stack, Visitor&& visit) const {
    bool is_leaf = true;
    for (uint32_t node = tables_.stacks[stack].leaf; node != 0; node = tables_.nodes[node].parent) {
      visit(tables_.nodes[node].frame, is_leaf);
      is_leaf = false;
    }
  }
  // What to look an address up by: a frame that is no leaf is a return address.
  uint64_t LookupAddress(uint32_t frame, bool is_leaf) const {
    const uint64_t address = tables_.frames[frame].address;
    return is_leaf || address == 0 ? address : address - 1;
  }

  // mappings[0], tasks[0], nodes[0] have the fixed meanings of chunk.proto and are always there.
  const merge::Tables& tables() const { return tables_; }
  const std::vector<proto::Domain>& domains() const { return domains_; }  // [0]: not attributed; always there
  const proto::Mode& mode() const { return mode_; }                       // the last told
  const proto::HypervisorFacts& hypervisor() const { return hypervisor_; }
  bool lost_entries() const { return lost_made_; }  // some reference led to a lost entry

  struct Function {
    absl::string_view name;  // demangled; empty: not known, then only one with a size has bounds
    uint64_t start = 0;
    uint64_t size = 0;  // 0: not known
    explicit operator bool() const { return !name.empty(); }
  };
  // `address` in the mapping's space, as LookupAddress gives it. Views live as long as the decoder.
  Function FunctionFor(uint32_t mapping, uint64_t address) const {
    const Function* const function = FindFunction(mapping, address);
    return function == nullptr ? Function{} : *function;
  }
  // The same, as one of FunctionsOf(mapping); null when there is none.
  const Function* FindFunction(uint32_t mapping, uint64_t address) const;
  struct Line {
    absl::string_view function;
    absl::string_view file;
    uint32_t line = 0;
  };
  // Inline frames and source lines of exactly this address, innermost first; empty when the chunk has none.
  absl::Span<const Line> LinesFor(uint32_t mapping, uint64_t address) const;
  // Where the names of a mapping came from, and why there are none. Empty before its Symbols came.
  absl::string_view SymbolSource(uint32_t mapping) const;
  absl::string_view SymbolProblem(uint32_t mapping) const;
  // Functions told of a mapping, ascending.
  absl::Span<const Function> FunctionsOf(uint32_t mapping) const;
  bool has_symbols() const { return has_symbols_; }

 private:
  struct LineGroup {
    uint64_t address;
    uint32_t first, count;  // in lines
  };
  struct SymbolTable {
    std::string source, problem;
    std::vector<Function> functions;
    std::vector<LineGroup> groups;
    std::vector<Line> lines;
  };

  // Checks a dictionary; what of it is coded is in unpacked_ then.
  absl::Status UnpackDictionary(const proto::Dictionary& dictionary);
  // The one in unpacked_.
  void AddDictionary(const proto::Dictionary& dictionary);
  absl::Status CheckSamples(const proto::Block& block) const;
  void MakeLostEntries();
  const SymbolTable* SymbolsOf(uint32_t mapping) const {
    return mapping < symbols_.size() ? &symbols_[mapping] : nullptr;
  }
  // The index for a reference that was checked: found, or (salvage) the lost entry.
  static uint32_t Resolve(const IdMap& ids, uint32_t id, uint32_t lost) {
    const uint32_t index = ids.Find(id);
    return index == IdMap::kNone ? lost : index;
  }

  // Coded columns of a dictionary, as file ids.
  struct Unpacked {
    std::vector<merge::Node> nodes;
    std::vector<uint32_t> stack_leaf;
    bool refers_to_lost = false;  // to an entry that is neither known nor added
  };

  Options options_;
  merge::Tables tables_;
  Unpacked unpacked_;  // of one block at a time; keeps its memory
  std::vector<proto::Domain> domains_;
  proto::Mode mode_;
  proto::HypervisorFacts hypervisor_;
  IdMap mapping_ids_{true}, task_ids_{true}, domain_ids_{true}, node_ids_{true};
  IdMap frame_ids_{false}, stack_ids_{false};
  // Indexes of the entries that stand for lost ones, once made.
  bool lost_made_ = false;
  uint32_t lost_mapping_ = 0, lost_task_ = 0, lost_frame_ = 0, lost_node_ = 0, lost_stack_ = 0;

  bool has_symbols_ = false;
  std::vector<SymbolTable> symbols_;             // index: mapping
  std::vector<std::vector<std::string>> names_;  // of each Symbols payload; the views above point into them
};

template <typename Visitor>
void ChunkDecoder::ForEachSample(const proto::Block& block, Visitor&& visit) const {
  for (const proto::CpuSamples& cpu : block.cpus()) {
    const uint32_t* task_run = cpu.task_runs().data();
    const uint32_t* domain_run = cpu.domain_runs().data();
    const bool domains = !cpu.domain_runs().empty();
    const int32_t* stacks = cpu.stack().data();
    ReferenceDecoder stack_ids(block.dictionary().first_stack());
    TimeDecoder times(cpu);
    uint32_t task_left = 0, domain_left = 0, task = 0, domain = 0;
    const int count = cpu.stack_size();
    for (int i = 0; i < count; ++i) {
      while (task_left == 0) {
        task_left = task_run[0];
        task = Resolve(task_ids_, task_run[1], lost_task_);
        task_run += 2;
      }
      --task_left;
      if (domains) {
        while (domain_left == 0) {
          domain_left = domain_run[0];
          domain = Resolve(domain_ids_, domain_run[1], 0);
          domain_run += 2;
        }
        --domain_left;
      }
      visit(cpu.cpu(), times.Next(), Resolve(stack_ids_, stack_ids.Decode(stacks[i]), lost_stack_), task,
            domain);
    }
  }
}

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_DECODER_H_
