#include "xenprof/chunk/table_merger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace xenprof::chunk {
namespace {

// Of all that makes a mapping what it is: merge::Mapping and symbols::MappingInfo have the same fields.
template <typename M>
std::string MappingKey(const M& mapping) {
  return absl::StrCat(static_cast<int>(mapping.kind), "\n", mapping.is_file, mapping.deleted, "\n",
                      mapping.start, "\n", mapping.end, "\n", mapping.pid, "\n", mapping.build_id.size(),
                      "\n", mapping.build_id, mapping.name);
}

// Looks `index` up in `memo`, growing it; kUnset when it was not seen yet.
uint32_t& Memo(std::vector<uint32_t>* memo, uint32_t index, uint32_t unset) {
  if (index >= memo->size()) memo->resize(std::max<size_t>(index + 1, memo->size() * 2), unset);
  return (*memo)[index];
}

}  // namespace

TableMerger::TableMerger() {
  tables_.mappings.emplace_back();
  tables_.tasks.emplace_back();
  tables_.nodes.push_back({0, 0});
  domains_.emplace_back();
}

void TableMerger::Begin(const ChunkDecoder* decoder) {
  decoder_ = decoder;
  for (std::vector<uint32_t>* memo : {&new_mapping_, &new_task_, &new_domain_, &new_node_})
    memo->assign(1, 0);
  for (std::vector<uint32_t>* memo : {&new_frame_, &new_stack_}) memo->clear();
}

void TableMerger::TakeFixedEntries() {
  if (tables_.tasks[0].comm.empty()) tables_.tasks[0] = decoder_->tables().tasks[0];
  if (tables_.mappings[0].name.empty()) tables_.mappings[0] = decoder_->tables().mappings[0];
}

uint32_t TableMerger::Mapping(uint32_t index) {
  uint32_t& id = Memo(&new_mapping_, index, kUnset);
  if (id != kUnset) return id;
  const merge::Mapping& mapping = decoder_->tables().mappings[index];
  std::string key = MappingKey(mapping);
  names_.sources[key].push_back({decoder_, index});
  const auto [found, is_new] =
      mapping_ids_.try_emplace(std::move(key), static_cast<uint32_t>(tables_.mappings.size()));
  if (is_new) tables_.mappings.push_back(mapping);
  return id = found->second;
}

uint32_t TableMerger::Task(uint32_t index) {
  uint32_t& id = Memo(&new_task_, index, kUnset);
  if (id != kUnset) return id;
  const merge::Task& task = decoder_->tables().tasks[index];
  const auto [found, is_new] =
      task_ids_.try_emplace(absl::StrCat(task.pid, " ", task.tid, " ", task.kernel_thread, " ", task.comm),
                            static_cast<uint32_t>(tables_.tasks.size()));
  if (is_new) tables_.tasks.push_back(task);
  return id = found->second;
}

uint32_t TableMerger::Domain(uint32_t index) {
  uint32_t& id = Memo(&new_domain_, index, kUnset);
  if (id != kUnset) return id;
  const proto::Domain& domain = decoder_->domains()[index];
  const auto [found, is_new] =
      domain_ids_.try_emplace(domain.SerializeAsString(), static_cast<uint32_t>(domains_.size()));
  if (is_new) domains_.push_back(domain);
  return id = found->second;
}

uint32_t TableMerger::Frame(uint32_t index) {
  if (const uint32_t id = Memo(&new_frame_, index, kUnset); id != kUnset) return id;
  const merge::Frame& frame = decoder_->tables().frames[index];
  const uint32_t mapping = Mapping(frame.mapping);
  const auto [found, is_new] =
      frame_ids_.try_emplace({mapping, frame.address}, static_cast<uint32_t>(tables_.frames.size()));
  if (is_new) tables_.frames.push_back({mapping, frame.address});
  return new_frame_[index] = found->second;
}

uint32_t TableMerger::Node(uint32_t index) {
  // Callers first; without recursion, for a stack of a file may be as deep as that file likes.
  path_.clear();
  while (Memo(&new_node_, index, kUnset) == kUnset) {
    path_.push_back(index);
    index = decoder_->tables().nodes[index].parent;
  }
  uint32_t parent = new_node_[index];
  for (auto node = path_.rbegin(); node != path_.rend(); ++node) {
    const uint32_t frame = Frame(decoder_->tables().nodes[*node].frame);
    const auto [found, is_new] =
        node_ids_.try_emplace({parent, frame}, static_cast<uint32_t>(tables_.nodes.size()));
    if (is_new) tables_.nodes.push_back({parent, frame});
    parent = new_node_[*node] = found->second;
  }
  return parent;
}

uint32_t TableMerger::Stack(uint32_t index) {
  if (const uint32_t id = Memo(&new_stack_, index, kUnset); id != kUnset) return id;
  const merge::Stack& stack = decoder_->tables().stacks[index];
  const uint32_t leaf = Node(stack.leaf);
  const uint64_t kind = static_cast<uint64_t>(stack.origin) | static_cast<uint64_t>(stack.flags) << 8;
  const auto [found, is_new] =
      stack_ids_.try_emplace({leaf, kind}, static_cast<uint32_t>(tables_.stacks.size()));
  if (is_new) tables_.stacks.push_back({leaf, stack.origin, stack.flags});
  return new_stack_[index] = found->second;
}

symbols::Resolved TableMerger::CarriedNames::Resolve(const symbols::MappingInfo& mapping,
                                                     absl::Span<const uint64_t> addresses) {
  symbols::Resolved resolved;
  const auto found = sources.find(MappingKey(mapping));
  if (found == sources.end()) return resolved;
  for (const Source& source : found->second) {
    if (resolved.source.empty()) resolved.source = std::string(source.decoder->SymbolSource(source.mapping));
    if (resolved.problem.empty())
      resolved.problem = std::string(source.decoder->SymbolProblem(source.mapping));
  }
  for (const uint64_t address : addresses) {
    ChunkDecoder::Function function;
    for (const Source& source : found->second) {
      const ChunkDecoder::Function here = source.decoder->FunctionFor(source.mapping, address);
      if (here || function.size == 0) function = here;
      if (here) break;
    }
    if ((function || function.size != 0) &&
        (resolved.functions.empty() || resolved.functions.back().start != function.start)) {
      resolved.functions.push_back({function.start, function.size, std::string(function.name)});
    }
    for (const Source& source : found->second) {
      const absl::Span<const ChunkDecoder::Line> lines = source.decoder->LinesFor(source.mapping, address);
      if (lines.empty()) continue;
      symbols::Lines& out = resolved.lines.emplace_back();
      out.address = address;
      for (const ChunkDecoder::Line& line : lines) {
        out.entries.push_back({std::string(line.function), std::string(line.file), line.line});
      }
      break;
    }
  }
  // Chunks that disagree about where a function begins would leave them out of order.
  std::stable_sort(resolved.functions.begin(), resolved.functions.end(),
                   [](const symbols::Function& a, const symbols::Function& b) { return a.start < b.start; });
  return resolved;
}

}  // namespace xenprof::chunk
