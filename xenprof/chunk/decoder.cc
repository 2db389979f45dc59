#include "xenprof/chunk/decoder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace xenprof::chunk {
namespace {

// More entries than this in one table are refused: a chunk would have been rotated long before.
constexpr uint64_t kMaxEntries = uint64_t{1} << 24;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace

void IdMap::Add(uint32_t first, uint32_t count, uint32_t index) {
  next_ = first + count;
  if (count == 0) return;
  Segment& last = segments_.back();
  if (first == 0 && index == 0) {
    last.end = count;
  } else if (first == last.end && index == last.index + (last.end - last.first)) {
    last.end += count;
  } else {
    segments_.push_back({first, first + count, index});
  }
}

uint32_t IdMap::FindEarlier(uint32_t id) const {
  auto after = std::upper_bound(segments_.begin(), segments_.end(), id,
                                [](uint32_t value, const Segment& segment) { return value < segment.first; });
  if (after == segments_.begin()) return kNone;
  const Segment& segment = *--after;
  return id < segment.end ? segment.index + (id - segment.first) : kNone;
}

ChunkDecoder::ChunkDecoder(const proto::Header& header) : ChunkDecoder(header, Options{}) {}

ChunkDecoder::ChunkDecoder(const proto::Header& header, Options options)
    : options_(options), mode_(header.mode()), hypervisor_(header.hypervisor()) {
  tables_.mappings.emplace_back();
  tables_.tasks.emplace_back();
  tables_.nodes.push_back({0, 0});
  domains_.emplace_back();
}

absl::Status ChunkDecoder::Add(const proto::Payload& payload) {
  switch (payload.kind_case()) {
    case proto::Payload::kBlock:
      return AddBlock(payload.block());
    case proto::Payload::kSymbols:
      return AddSymbols(payload.symbols());
    case proto::Payload::kTrailer:
      return absl::OkStatus();
    case proto::Payload::kHeader:
      return Bad("a second header");
    case proto::Payload::KIND_NOT_SET:
      break;
  }
  return Bad("a payload of unknown kind");
}

absl::Status ChunkDecoder::AddBlock(const proto::Block& block) {
  if (block.start_ns() > block.end_ns()) {
    return Bad("block from ", block.start_ns(), " ns until ", block.end_ns(), " ns");
  }
  if (block.has_dictionary()) {
    const Unpacked unpacked = Unpack(block.dictionary());
    absl::Status status = CheckDictionary(block.dictionary(), unpacked);
    if (!status.ok()) return status;
    AddDictionary(block.dictionary(), unpacked);
  }
  if (block.has_mode()) mode_ = block.mode();
  if (block.has_hypervisor()) hypervisor_ = block.hypervisor();
  absl::Status status = CheckSamples(block);
  if (!status.ok()) return status;
  if (options_.salvage && !lost_made_) {
    // Samples may lead to a lost stack or task: find out before a visitor needs it.
    const auto lost = [](const IdMap& ids, uint32_t id) { return ids.Find(id) == IdMap::kNone; };
    for (const proto::CpuSamples& cpu : block.cpus()) {
      ReferenceDecoder stacks(block.dictionary().first_stack());
      bool any = false;
      for (const int32_t reference : cpu.stack()) any |= lost(stack_ids_, stacks.Decode(reference));
      for (int i = 1; i < cpu.task_runs_size(); i += 2) any |= lost(task_ids_, cpu.task_runs(i));
      if (any) {
        MakeLostEntries();
        break;
      }
    }
  }
  return absl::OkStatus();
}

bool ChunkDecoder::Known(const IdMap& ids, uint32_t id, uint32_t first, size_t count) const {
  if (ids.Find(id) != IdMap::kNone || (id >= first && id - first < count)) return true;
  return options_.salvage;
}

ChunkDecoder::Unpacked ChunkDecoder::Unpack(const proto::Dictionary& d) {
  Unpacked unpacked;
  unpacked.node_parent.reserve(static_cast<size_t>(d.node_parent_size()));
  uint32_t id = d.first_node();
  for (const uint32_t parent : d.node_parent()) {
    unpacked.node_parent.push_back(parent == 0 ? id - 1 : parent - 1);
    ++id;
  }
  unpacked.node_frame.reserve(static_cast<size_t>(d.node_frame_size()));
  ReferenceDecoder frames(d.first_frame());
  for (int i = 0; i < d.node_frame_size(); ++i) {
    unpacked.node_frame.push_back(d.first_node() == 0 && i == 0 ? 0 : frames.Decode(d.node_frame(i)));
  }
  unpacked.stack_leaf.reserve(static_cast<size_t>(d.stack_leaf_size()));
  uint32_t leaf = 0;
  for (const int32_t step : d.stack_leaf())
    unpacked.stack_leaf.push_back(leaf += static_cast<uint32_t>(step));
  return unpacked;
}

absl::Status ChunkDecoder::CheckDictionary(const proto::Dictionary& d, const Unpacked& unpacked) const {
  const auto columns = [](const char* what, int a, int b) {
    return a == b ? absl::OkStatus() : Bad("columns of ", what, " differ in length: ", a, " and ", b);
  };
  absl::Status status = columns("frames", d.frame_mapping_size(), d.frame_address_size());
  status.Update(columns("nodes", d.node_parent_size(), d.node_frame_size()));
  status.Update(columns("stacks", d.stack_leaf_size(), d.stack_kind_size()));
  const auto follows = [&](const char* what, const IdMap& ids, uint32_t first, int count) {
    if (first < ids.next()) {
      return Bad(what, " ", first, " comes again: there are ", ids.next(), " already");
    }
    if (first > ids.next() && !options_.salvage) {
      return Bad(what, " ", ids.next(), " to ", first - 1, " are missing: a block was lost");
    }
    if (first + uint64_t{static_cast<uint32_t>(count)} > kMaxEntries)
      return Bad("more than ", kMaxEntries, " entries of kind ", what);
    return absl::OkStatus();
  };
  status.Update(follows("mapping", mapping_ids_, d.first_mapping(), d.mappings_size()));
  status.Update(follows("task", task_ids_, d.first_task(), d.tasks_size()));
  status.Update(follows("domain", domain_ids_, d.first_domain(), d.domains_size()));
  status.Update(follows("frame", frame_ids_, d.first_frame(), d.frame_mapping_size()));
  status.Update(follows("node", node_ids_, d.first_node(), d.node_parent_size()));
  status.Update(follows("stack", stack_ids_, d.first_stack(), d.stack_leaf_size()));
  if (!status.ok()) return status;

  for (int i = 0; i < d.frame_mapping_size(); ++i) {
    if (!Known(mapping_ids_, d.frame_mapping(i), d.first_mapping(), d.mappings_size())) {
      return Bad("frame ", d.first_frame() + i, " refers to mapping ", d.frame_mapping(i),
                 ", which does not exist");
    }
  }
  for (int i = 0; i < d.node_parent_size(); ++i) {
    const uint32_t id = d.first_node() + i;
    const uint32_t parent = unpacked.node_parent[i], frame = unpacked.node_frame[i];
    if (id == 0) {
      if (parent != 0) return Bad("the root of all stacks has a caller");
      continue;
    }
    if (parent >= id) return Bad("node ", id, " has its caller, node ", parent, ", not before itself");
    if (!Known(node_ids_, parent, d.first_node(), d.node_parent_size())) {
      return Bad("node ", id, " refers to node ", parent, ", which does not exist");
    }
    if (!Known(frame_ids_, frame, d.first_frame(), d.frame_mapping_size())) {
      return Bad("node ", id, " refers to frame ", frame, ", which does not exist");
    }
  }
  for (int i = 0; i < d.stack_leaf_size(); ++i) {
    if (!Known(node_ids_, unpacked.stack_leaf[i], d.first_node(), d.node_parent_size())) {
      return Bad("stack ", d.first_stack() + i, " refers to node ", unpacked.stack_leaf[i],
                 ", which does not exist");
    }
  }
  return absl::OkStatus();
}

void ChunkDecoder::MakeLostEntries() {
  if (lost_made_) return;
  lost_made_ = true;
  lost_mapping_ = static_cast<uint32_t>(tables_.mappings.size());
  tables_.mappings.push_back({.name = std::string(kLostInDamage)});
  lost_task_ = static_cast<uint32_t>(tables_.tasks.size());
  tables_.tasks.push_back({.comm = std::string(kLostInDamage)});
  lost_frame_ = static_cast<uint32_t>(tables_.frames.size());
  tables_.frames.push_back({lost_mapping_, 0});
  lost_node_ = static_cast<uint32_t>(tables_.nodes.size());
  tables_.nodes.push_back({0, lost_frame_});
  lost_stack_ = static_cast<uint32_t>(tables_.stacks.size());
  tables_.stacks.push_back({lost_node_, Origin::kUnknown, kStackTruncated});
}

// `d` has been checked.
void ChunkDecoder::AddDictionary(const proto::Dictionary& d, const Unpacked& unpacked) {
  // A hole in one table means lost entries in all: made before the new ones, so that parents still come
  // first.
  if (d.first_mapping() != mapping_ids_.next() || d.first_task() != task_ids_.next() ||
      d.first_domain() != domain_ids_.next() || d.first_frame() != frame_ids_.next() ||
      d.first_node() != node_ids_.next() || d.first_stack() != stack_ids_.next()) {
    MakeLostEntries();
  }
  // Salvage of a file that refers to what never was.
  const auto resolve = [this](const IdMap& ids, uint32_t id, const uint32_t& lost) {
    const uint32_t index = ids.Find(id);
    if (index != IdMap::kNone) return index;
    MakeLostEntries();
    return lost;
  };
  // Gives the entries that join `table` now their places. Entry 0 of some tables is there already and
  // replaced.
  const auto add = [](IdMap* ids, uint32_t first, int added, bool zero_is_fixed, auto* table) {
    uint32_t count = static_cast<uint32_t>(added);
    if (zero_is_fixed && first == 0 && count > 0) {
      ids->Add(0, 1, 0);
      first = 1;
      --count;
    }
    ids->Add(first, count, static_cast<uint32_t>(table->size()));
    table->resize(table->size() + count);
  };

  add(&mapping_ids_, d.first_mapping(), d.mappings_size(), true, &tables_.mappings);
  uint32_t id = d.first_mapping();
  for (const proto::Mapping& mapping : d.mappings()) {
    tables_.mappings[mapping_ids_.Find(id++)] = {.kind = proto::FrameKind_IsValid(mapping.kind())
                                                             ? static_cast<FrameKind>(mapping.kind())
                                                             : FrameKind::kUnknown,
                                                 .name = mapping.name(),
                                                 .build_id = mapping.build_id(),
                                                 .is_file = mapping.is_file(),
                                                 .deleted = mapping.deleted(),
                                                 .start = mapping.start(),
                                                 .end = mapping.end(),
                                                 .pid = mapping.pid()};
  }
  add(&task_ids_, d.first_task(), d.tasks_size(), true, &tables_.tasks);
  id = d.first_task();
  for (const proto::Task& task : d.tasks()) {
    tables_.tasks[task_ids_.Find(id++)] = {.pid = task.pid(),
                                           .tid = task.tid(),
                                           .comm = task.comm(),
                                           .start_ns = task.start_ns(),
                                           .kernel_thread = task.kernel_thread()};
  }
  add(&domain_ids_, d.first_domain(), d.domains_size(), true, &domains_);
  id = d.first_domain();
  for (const proto::Domain& domain : d.domains()) domains_[domain_ids_.Find(id++)] = domain;

  std::vector<uint32_t> frame_mapping(d.frame_mapping_size());
  for (int i = 0; i < d.frame_mapping_size(); ++i) {
    frame_mapping[i] = resolve(mapping_ids_, d.frame_mapping(i), lost_mapping_);
  }
  std::vector<uint64_t> last_address(tables_.mappings.size(), 0);  // index: mapping
  add(&frame_ids_, d.first_frame(), d.frame_mapping_size(), false, &tables_.frames);
  for (int i = 0; i < d.frame_mapping_size(); ++i) {
    uint64_t& address = last_address[frame_mapping[i]];
    address += static_cast<uint64_t>(d.frame_address(i));
    tables_.frames[frame_ids_.Find(d.first_frame() + i)] = {frame_mapping[i], address};
  }

  // References are resolved before the entries are added: a lost entry made meanwhile stays in front of them.
  std::vector<uint32_t> node_frame(d.node_frame_size());
  for (int i = 0; i < d.node_frame_size(); ++i) {
    node_frame[i] = d.first_node() + i == 0 ? 0 : resolve(frame_ids_, unpacked.node_frame[i], lost_frame_);
  }
  for (const uint32_t parent : unpacked.node_parent) {
    if (parent < d.first_node()) resolve(node_ids_, parent, lost_node_);
  }
  add(&node_ids_, d.first_node(), d.node_parent_size(), true, &tables_.nodes);
  id = d.first_node();
  for (int i = 0; i < d.node_parent_size(); ++i, ++id) {
    tables_.nodes[node_ids_.Find(id)] = {Resolve(node_ids_, unpacked.node_parent[i], lost_node_),
                                         node_frame[i]};
  }

  std::vector<uint32_t> stack_leaf(d.stack_leaf_size());
  for (int i = 0; i < d.stack_leaf_size(); ++i) {
    stack_leaf[i] = resolve(node_ids_, unpacked.stack_leaf[i], lost_node_);
  }
  add(&stack_ids_, d.first_stack(), d.stack_leaf_size(), false, &tables_.stacks);
  for (int i = 0; i < d.stack_leaf_size(); ++i) {
    const uint32_t origin = d.stack_kind(i) & 0xf;
    tables_.stacks[stack_ids_.Find(d.first_stack() + i)] = {
        stack_leaf[i], origin < kOriginCount ? static_cast<Origin>(origin) : Origin::kUnknown,
        static_cast<uint8_t>(d.stack_kind(i) >> 4)};
  }
}

absl::Status ChunkDecoder::CheckSamples(const proto::Block& block) const {
  for (const proto::CpuSamples& cpu : block.cpus()) {
    const int count = cpu.stack_size();
    const auto bad = [&](auto... parts) { return Bad("samples of CPU ", cpu.cpu(), ": ", parts...); };
    if (cpu.time_step_size() != count) {
      return bad("columns differ in length: ", cpu.time_step_size(), " times, ", count, " stacks");
    }
    if (cpu.time_low_bytes() > 2 ||
        cpu.time_low().size() != cpu.time_low_bytes() * static_cast<size_t>(cpu.time_step_size())) {
      return bad("columns differ in length: ", count, " times, ", cpu.time_low().size(), " of ",
                 cpu.time_low_bytes(), " low bytes each");
    }
    const auto check_runs = [&](const char* what, const google::protobuf::RepeatedField<uint32_t>& runs,
                                const IdMap& ids) -> absl::Status {
      if (runs.size() % 2 != 0) return bad("the runs of ", what, "s are no pairs");
      uint64_t total = 0;
      for (int i = 0; i < runs.size(); i += 2) {
        total += runs[i];
        if (!Known(ids, runs[i + 1], 0, 0)) return bad("no ", what, " ", runs[i + 1]);
      }
      if (total != static_cast<uint64_t>(count)) {
        return bad("the runs of ", what, "s are for ", total, " samples, there are ", count);
      }
      return absl::OkStatus();
    };
    absl::Status status = check_runs("task", cpu.task_runs(), task_ids_);
    if (status.ok() && !cpu.domain_runs().empty())
      status = check_runs("domain", cpu.domain_runs(), domain_ids_);
    if (!status.ok()) return status;
    if (!options_.salvage) {
      ReferenceDecoder stacks(block.dictionary().first_stack());
      for (const int32_t reference : cpu.stack()) {
        const uint32_t id = stacks.Decode(reference);
        if (stack_ids_.Find(id) == IdMap::kNone) return bad("no stack ", id);
      }
    }
    TimeDecoder times(cpu);
    for (int i = 0; i < count; ++i) {
      const uint64_t time_ns = times.Next();
      if (time_ns < block.start_ns() || time_ns >= block.end_ns()) {
        return bad("sample ", i, " at ", time_ns, " ns is outside its block, ", block.start_ns(), " to ",
                   block.end_ns(), " ns");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace xenprof::chunk
