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
    absl::Status status = UnpackDictionary(block.dictionary());
    if (!status.ok()) return status;
    AddDictionary(block.dictionary());
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

absl::Status ChunkDecoder::UnpackDictionary(const proto::Dictionary& d) {
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

  unpacked_.refers_to_lost = false;
  // Whether `id` may be referred to: added by this dictionary, or known, or lost and salvaging.
  const auto known = [this](const IdMap& ids, uint32_t id, uint32_t first, int added) {
    if (id - first < static_cast<uint32_t>(added) || ids.Find(id) != IdMap::kNone) return true;
    unpacked_.refers_to_lost = true;
    return options_.salvage;
  };
  const uint32_t* const frame_mapping = d.frame_mapping().data();
  for (int i = 0; i < d.frame_mapping_size(); ++i) {
    if (!known(mapping_ids_, frame_mapping[i], d.first_mapping(), d.mappings_size())) {
      return Bad("frame ", d.first_frame() + i, " refers to mapping ", frame_mapping[i],
                 ", which does not exist");
    }
  }

  const int node_count = d.node_parent_size();
  const uint32_t* const parents = d.node_parent().data();
  const int32_t* const frame_references = d.node_frame().data();
  unpacked_.nodes.resize(static_cast<size_t>(node_count));
  ReferenceDecoder frames(d.first_frame());
  int first = 0;
  if (node_count > 0 && d.first_node() == 0) {  // the root, which has no frame
    if (parents[0] != 1) return Bad("the root of all stacks has a caller");
    first = 1;
  }
  for (int i = first; i < node_count; ++i) {
    const uint32_t id = d.first_node() + static_cast<uint32_t>(i);
    const uint32_t parent = (parents[i] == 0 ? id : parents[i]) - 1;
    const uint32_t frame = frames.Decode(frame_references[i]);
    if (parent >= id) return Bad("node ", id, " has its caller, node ", parent, ", not before itself");
    if (!known(node_ids_, parent, d.first_node(), node_count)) {
      return Bad("node ", id, " refers to node ", parent, ", which does not exist");
    }
    if (!known(frame_ids_, frame, d.first_frame(), d.frame_mapping_size())) {
      return Bad("node ", id, " refers to frame ", frame, ", which does not exist");
    }
    unpacked_.nodes[static_cast<size_t>(i)] = {parent, frame};
  }

  const int stack_count = d.stack_leaf_size();
  const int32_t* const leaf_steps = d.stack_leaf().data();
  unpacked_.stack_leaf.resize(static_cast<size_t>(stack_count));
  uint32_t leaf = 0;
  for (int i = 0; i < stack_count; ++i) {
    leaf += static_cast<uint32_t>(leaf_steps[i]);
    if (!known(node_ids_, leaf, d.first_node(), node_count)) {
      return Bad("stack ", d.first_stack() + i, " refers to node ", leaf, ", which does not exist");
    }
    unpacked_.stack_leaf[static_cast<size_t>(i)] = leaf;
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

void ChunkDecoder::AddDictionary(const proto::Dictionary& d) {
  // A hole in one table means lost entries in all. They are made before the new ones, so that parents still
  // come first.
  if (unpacked_.refers_to_lost || d.first_mapping() != mapping_ids_.next() ||
      d.first_task() != task_ids_.next() || d.first_domain() != domain_ids_.next() ||
      d.first_frame() != frame_ids_.next() || d.first_node() != node_ids_.next() ||
      d.first_stack() != stack_ids_.next()) {
    MakeLostEntries();
  }
  // Makes room in `table` for entries from id `first` on: the n-th is at the index returned plus n, but for
  // entry 0 where that is there already: it is replaced.
  const auto add = [](IdMap* ids, uint32_t first, int added, bool zero_is_fixed, auto* table) {
    const uint32_t replaced = zero_is_fixed && first == 0 && added > 0 ? 1 : 0;
    const uint32_t count = static_cast<uint32_t>(added) - replaced;
    const auto size = static_cast<uint32_t>(table->size());
    if (replaced > 0) ids->Add(0, 1, 0);
    ids->Add(first + replaced, count, size);
    table->resize(size + count);
    return size - replaced;
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

  const uint32_t* const frame_mapping = d.frame_mapping().data();
  const int64_t* const frame_address = d.frame_address().data();
  std::vector<uint64_t> last_address(tables_.mappings.size(), 0);  // index: mapping
  const uint32_t first_frame =
      add(&frame_ids_, d.first_frame(), d.frame_mapping_size(), false, &tables_.frames);
  merge::Frame* const frames = tables_.frames.data() + first_frame;
  for (int i = 0; i < d.frame_mapping_size(); ++i) {
    const uint32_t mapping = Resolve(mapping_ids_, frame_mapping[i], lost_mapping_);
    last_address[mapping] += static_cast<uint64_t>(frame_address[i]);
    frames[i] = {mapping, last_address[mapping]};
  }

  const uint32_t first_node = add(&node_ids_, d.first_node(), d.node_parent_size(), true, &tables_.nodes);
  for (uint32_t i = d.first_node() == 0 ? 1 : 0; i < unpacked_.nodes.size(); ++i) {
    const merge::Node& node = unpacked_.nodes[i];
    tables_.nodes[first_node + i] = {Resolve(node_ids_, node.parent, lost_node_),
                                     Resolve(frame_ids_, node.frame, lost_frame_)};
  }

  const uint32_t* const stack_kind = d.stack_kind().data();
  const uint32_t first_stack = add(&stack_ids_, d.first_stack(), d.stack_leaf_size(), false, &tables_.stacks);
  for (uint32_t i = 0; i < unpacked_.stack_leaf.size(); ++i) {
    const uint32_t origin = stack_kind[i] & 0xf;
    tables_.stacks[first_stack + i] = {Resolve(node_ids_, unpacked_.stack_leaf[i], lost_node_),
                                       origin < kOriginCount ? static_cast<Origin>(origin) : Origin::kUnknown,
                                       static_cast<uint8_t>(stack_kind[i] >> 4)};
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
        if (ids.Find(runs[i + 1]) == IdMap::kNone && !options_.salvage) {
          return bad("no ", what, " ", runs[i + 1]);
        }
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
