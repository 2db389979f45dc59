#include "xenprof/chunk/block_encoder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "xenprof/chunk/envelope.h"
#include "xenprof/chunk/reference.h"
#include "xenprof/chunk/utf8.h"

namespace xenprof::chunk {
namespace {

// Room for `count` more elements, to be filled by the caller: protobuf's own Add is a call for each.
template <typename T>
T* Grow(google::protobuf::RepeatedField<T>* field, size_t count) {
  field->Reserve(field->size() + static_cast<int>(count));
  return field->AddNAlreadyReserved(static_cast<int>(count));
}

// Runs of equal values as pairs: how many, value.
void AppendRuns(const uint32_t* values, size_t count, google::protobuf::RepeatedField<uint32_t>* runs) {
  for (size_t begin = 0; begin < count;) {
    size_t end = begin + 1;
    while (end < count && values[end] == values[begin]) ++end;
    runs->Add(static_cast<uint32_t>(end - begin));
    runs->Add(values[begin]);
    begin = end;
  }
}

// Bytes of noise at the low end of most deltas: those of the median's size, less one that the varint keeps.
uint32_t LowBytes(absl::Span<const int64_t> deltas) {
  const size_t stride = std::max<size_t>(1, deltas.size() / 256);
  size_t looked_at = 0, above_byte = 0, above_two = 0;
  for (size_t i = 0; i < deltas.size(); i += stride, ++looked_at) {
    const uint64_t size = static_cast<uint64_t>(deltas[i] < 0 ? ~deltas[i] : deltas[i]);
    above_byte += size >= (uint64_t{1} << 6);
    above_two += size >= (uint64_t{1} << 14);
  }
  return above_two * 2 > looked_at ? 2 : above_byte * 2 > looked_at ? 1 : 0;
}

void EncodeSteps(absl::Span<const int64_t> deltas, proto::CpuSamples* out) {
  const uint32_t low_bytes = LowBytes(deltas);
  out->set_time_low_bytes(low_bytes);
  std::string* low = out->mutable_time_low();
  low->resize(low_bytes * deltas.size());
  for (uint32_t plane = 0; plane < low_bytes; ++plane) {
    char* to = low->data() + plane * deltas.size();
    for (size_t i = 0; i < deltas.size(); ++i) to[i] = static_cast<char>(deltas[i] >> (8 * plane));
  }
  int64_t* step = Grow(out->mutable_time_step(), deltas.size());
  for (const int64_t delta : deltas) *step++ = delta >> (8 * low_bytes);
}

// Where a compressor should begin afresh: at both ends of each large column, for each has statistics of its
// own. `bytes` is a serialised Payload of ours: columns are fields of messages in its Block.
void FindLargeColumns(absl::string_view bytes, std::vector<size_t>* cuts) {
  constexpr uint64_t kLargeBytes = 4096;
  cuts->clear();
  const absl::Span<const uint8_t> all(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  // Ends of the messages `at` is in; the innermost is a table's or a CPU's.
  constexpr size_t kDepth = 2;
  size_t ends[kDepth + 1] = {all.size()};
  size_t depth = 0;
  const auto cut = [&](size_t at) {
    if (at != 0 && at != all.size() && (cuts->empty() || cuts->back() < at)) cuts->push_back(at);
  };
  for (size_t at = 0; at < all.size();) {
    while (depth > 0 && at == ends[depth]) --depth;
    const Varint key = ReadVarint(all.subspan(at));
    at += static_cast<size_t>(key.bytes);
    const Varint value = ReadVarint(all.subspan(at));
    at += static_cast<size_t>(value.bytes);
    if ((key.value & 7) != 2) continue;  // our messages have varints and bytes only
    const size_t end = at + value.value;
    if (depth < kDepth && value.value >= kLargeBytes) {
      ends[++depth] = end;
      continue;
    }
    if (value.value >= kLargeBytes) {
      cut(at);
      cut(end);
    }
    at = end;
  }
}

}  // namespace

void ToProto(const merge::Incident& incident, proto::Incident* out) {
  out->set_kind(static_cast<proto::Incident::Kind>(incident.kind));
  out->set_cpu_plus_one(static_cast<uint32_t>(incident.cpu + 1));
  out->set_start_ns(incident.start_ns);
  out->set_end_ns(incident.end_ns);
  out->set_count(incident.count);
  out->set_text(ToUtf8(incident.text));
}

uint64_t UsualStep(absl::Span<const uint64_t> times, std::vector<uint64_t>* scratch) {
  if (times.size() < 2) return 0;
  // A few hundred steps tell the median as well as all of them.
  const size_t stride = std::max<size_t>(1, (times.size() - 1) / 512);
  scratch->clear();
  for (size_t i = 1; i < times.size(); i += stride) scratch->push_back(times[i] - times[i - 1]);
  const auto middle = scratch->begin() + static_cast<std::ptrdiff_t>(scratch->size() / 2);
  std::nth_element(scratch->begin(), middle, scratch->end());
  return *middle;
}

std::vector<BlockEncoder::Piece> BlockEncoder::Split(const merge::Window& window) {
  std::vector<Piece> pieces;
  size_t first_cpu = 0, held = 0;
  for (size_t cpu = 0; cpu < window.cpus.size(); ++cpu) {
    const size_t count = window.cpus[cpu].time_ns.size();
    if (held + count > kMaxSamplesPerBlock) {
      if (first_cpu < cpu) pieces.push_back({first_cpu, cpu, 0, SIZE_MAX});
      first_cpu = cpu;
      held = 0;
      if (count > kMaxSamplesPerBlock) {
        for (size_t begin = 0; begin < count; begin += kMaxSamplesPerBlock) {
          pieces.push_back({cpu, cpu + 1, begin, std::min(count, begin + kMaxSamplesPerBlock)});
        }
        first_cpu = cpu + 1;
        continue;
      }
    }
    held += count;
  }
  if (first_cpu < window.cpus.size() || pieces.empty()) {
    pieces.push_back({first_cpu, window.cpus.size(), 0, SIZE_MAX});
  }
  return pieces;
}

absl::Status BlockEncoder::Encode(const merge::Window& window, const Piece& piece,
                                  const merge::Tables& tables, const merge::TableMarks& written,
                                  const DomainColumns* domains, size_t domains_written) {
  payload_.Clear();
  columns_.Clear();
  samples_ = 0;
  first_ns_ = UINT64_MAX;
  last_ns_ = 0;
  by_origin_.fill(0);

  absl::Status status = EncodeDictionary(tables, written);
  if (!status.ok()) return status;
  proto::Dictionary* dictionary = block()->mutable_dictionary();
  dictionary->set_first_domain(static_cast<uint32_t>(domains_written));
  if (domains != nullptr) {
    for (size_t i = domains_written; i < domains->domains.size(); ++i) {
      proto::Domain* out = dictionary->add_domains();
      *out = domains->domains[i];
      out->set_name(ToUtf8(out->name()));
    }
    if (domains->of_sample.size() != window.cpus.size())
      return absl::InvalidArgumentError("domains of other CPUs");
    for (const std::vector<uint32_t>& ids : domains->of_sample) {
      for (const uint32_t id : ids) {
        if (id >= domains->domains.size()) return absl::InvalidArgumentError(absl::StrCat("no domain ", id));
      }
    }
  }
  const bool first_piece = piece.first_cpu == 0 && piece.first_sample == 0;
  if (first_piece) {
    for (const merge::Incident& incident : window.incidents) ToProto(incident, block()->add_incidents());
    for (const merge::CpuColumns& cpu : window.cpus) {
      proto::CpuTime* time = block()->add_cpu_time();
      time->set_cpu(cpu.cpu);
      time->set_sampled_ns(cpu.sampled_ns);
    }
  }
  columns_.mutable_block();
  for (size_t i = piece.first_cpu; i < piece.end_cpu; ++i) {
    const merge::CpuColumns& cpu = window.cpus[i];
    status = EncodeCpu(cpu, piece.first_sample, std::min(piece.end_sample, cpu.time_ns.size()), tables,
                       domains == nullptr ? nullptr : &domains->of_sample[i]);
    if (!status.ok()) return status;
  }
  // A sample that came late belongs to a time before the window: the block says so, for readers skip by
  // these.
  block()->set_start_ns(std::min(window.start_ns, first_ns_));
  block()->set_end_ns(samples_ == 0 ? window.end_ns : std::max(window.end_ns, last_ns_ + 1));
  return absl::OkStatus();
}

absl::Status BlockEncoder::EncodeDictionary(const merge::Tables& tables, const merge::TableMarks& written) {
  const auto bad = [](auto... parts) { return absl::InvalidArgumentError(absl::StrCat(parts...)); };
  if (written.mappings > tables.mappings.size() || written.tasks > tables.tasks.size() ||
      written.frames > tables.frames.size() || written.nodes > tables.nodes.size() ||
      written.stacks > tables.stacks.size()) {
    return bad("the tables are shorter than what is written of them: they belong to another chunk");
  }
  if (tables.mappings.empty() || tables.tasks.empty() || tables.nodes.empty()) {
    return bad("entry 0 of mappings, tasks or nodes is missing");
  }
  proto::Dictionary* dictionary = block()->mutable_dictionary();

  dictionary->set_first_mapping(static_cast<uint32_t>(written.mappings));
  for (size_t i = written.mappings; i < tables.mappings.size(); ++i) {
    const merge::Mapping& mapping = tables.mappings[i];
    proto::Mapping* out = dictionary->add_mappings();
    out->set_kind(static_cast<proto::FrameKind>(mapping.kind));
    out->set_name(ToUtf8(mapping.name));
    out->set_build_id(mapping.build_id);
    out->set_is_file(mapping.is_file);
    out->set_deleted(mapping.deleted);
    out->set_start(mapping.start);
    out->set_end(mapping.end);
    out->set_pid(mapping.pid);
  }

  dictionary->set_first_task(static_cast<uint32_t>(written.tasks));
  for (size_t i = written.tasks; i < tables.tasks.size(); ++i) {
    const merge::Task& task = tables.tasks[i];
    proto::Task* out = dictionary->add_tasks();
    out->set_pid(task.pid);
    out->set_tid(task.tid);
    out->set_comm(ToUtf8(task.comm));
    out->set_start_ns(task.start_ns);
    out->set_kernel_thread(task.kernel_thread);
  }

  dictionary->set_first_frame(static_cast<uint32_t>(written.frames));
  const size_t frames_count = tables.frames.size() - written.frames;
  uint32_t* frame_mapping = Grow(dictionary->mutable_frame_mapping(), frames_count);
  int64_t* frame_address = Grow(dictionary->mutable_frame_address(), frames_count);
  last_address_.assign(tables.mappings.size(), 0);
  for (size_t i = written.frames; i < tables.frames.size(); ++i) {
    const merge::Frame& frame = tables.frames[i];
    if (frame.mapping >= tables.mappings.size()) return bad("frame ", i, ": no mapping ", frame.mapping);
    uint64_t& last = last_address_[frame.mapping];
    *frame_mapping++ = frame.mapping;
    *frame_address++ = static_cast<int64_t>(frame.address - last);
    last = frame.address;
  }

  ReferenceCoder frames(static_cast<uint32_t>(written.frames));
  dictionary->set_first_node(static_cast<uint32_t>(written.nodes));
  const size_t nodes_count = tables.nodes.size() - written.nodes;
  uint32_t* node_parent = Grow(dictionary->mutable_node_parent(), nodes_count);
  int32_t* node_frame = Grow(dictionary->mutable_node_frame(), nodes_count);
  for (size_t i = written.nodes; i < tables.nodes.size(); ++i) {
    const merge::Node& node = tables.nodes[i];
    if (i > 0 && (node.parent >= i || node.frame >= tables.frames.size())) {
      return bad("node ", i, ": no caller ", node.parent, " or no frame ", node.frame);
    }
    *node_parent++ = i > 0 && node.parent == i - 1 ? 0 : node.parent + 1;
    *node_frame++ = i == 0 ? 0 : frames.Encode(node.frame);
  }

  uint32_t last_leaf = 0;
  dictionary->set_first_stack(static_cast<uint32_t>(written.stacks));
  const size_t stacks_count = tables.stacks.size() - written.stacks;
  int32_t* stack_leaf = Grow(dictionary->mutable_stack_leaf(), stacks_count);
  uint32_t* stack_kind = Grow(dictionary->mutable_stack_kind(), stacks_count);
  for (size_t i = written.stacks; i < tables.stacks.size(); ++i) {
    const merge::Stack& stack = tables.stacks[i];
    if (stack.leaf >= tables.nodes.size()) return bad("stack ", i, ": no node ", stack.leaf);
    *stack_leaf++ = static_cast<int32_t>(stack.leaf - last_leaf);
    last_leaf = stack.leaf;
    *stack_kind++ = static_cast<uint32_t>(stack.origin) | static_cast<uint32_t>(stack.flags) << 4;
  }

  return absl::OkStatus();
}

absl::Status BlockEncoder::EncodeCpu(const merge::CpuColumns& cpu, size_t begin, size_t end,
                                     const merge::Tables& tables, const std::vector<uint32_t>* domains) {
  if (begin >= end) return absl::OkStatus();
  if (cpu.stack.size() != cpu.time_ns.size() || cpu.task.size() != cpu.time_ns.size() ||
      (domains != nullptr && domains->size() != cpu.time_ns.size())) {
    return absl::InvalidArgumentError(absl::StrCat("columns of CPU ", cpu.cpu, " differ in length"));
  }
  const size_t count = end - begin;
  const uint64_t* times = cpu.time_ns.data() + begin;
  const uint32_t* stacks = cpu.stack.data() + begin;

  uint32_t highest_task = 0;
  for (size_t i = begin; i < end; ++i) highest_task = std::max(highest_task, cpu.task[i]);
  if (highest_task >= tables.tasks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("CPU ", cpu.cpu, ": no task ", highest_task));
  }

  proto::CpuSamples* out = columns_.mutable_block()->add_cpus();
  out->set_cpu(cpu.cpu);
  out->set_first_ns(times[0]);
  const uint64_t usual = UsualStep({times, count}, &steps_);
  out->set_usual_step_ns(usual);

  uint64_t lowest = times[0], highest = times[0];
  deltas_.resize(count);
  deltas_[0] = 0;
  for (size_t i = 1; i < count; ++i) {
    deltas_[i] = static_cast<int64_t>(times[i] - times[i - 1] - usual);
    lowest = std::min(lowest, times[i]);
    highest = std::max(highest, times[i]);
  }
  EncodeSteps(deltas_, out);
  first_ns_ = std::min(first_ns_, lowest);
  last_ns_ = std::max(last_ns_, highest);

  int32_t* references = Grow(out->mutable_stack(), count);
  ReferenceCoder coder(block()->dictionary().first_stack());
  for (size_t i = 0; i < count; ++i) {
    if (stacks[i] >= tables.stacks.size()) {
      return absl::InvalidArgumentError(absl::StrCat("CPU ", cpu.cpu, ": no stack ", stacks[i]));
    }
    ++by_origin_[static_cast<size_t>(tables.stacks[stacks[i]].origin) % kOriginCount];
    references[i] = coder.Encode(stacks[i]);
  }
  AppendRuns(cpu.task.data() + begin, count, out->mutable_task_runs());
  if (domains != nullptr) {
    const auto first = domains->begin() + static_cast<std::ptrdiff_t>(begin);
    if (std::any_of(first, first + static_cast<std::ptrdiff_t>(count), [](uint32_t id) { return id != 0; })) {
      AppendRuns(domains->data() + begin, count, out->mutable_domain_runs());
    }
  }
  samples_ += count;
  return absl::OkStatus();
}

bool BlockEncoder::Serialize() {
  const auto serialize = [](const proto::Payload& payload, std::string* out) {
    const size_t size = payload.ByteSizeLong();
    if (size > INT32_MAX) return false;
    out->resize(size);
    return payload.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(out->data())) ==
           reinterpret_cast<uint8_t*>(out->data()) + size;
  };
  column_bytes_.clear();
  column_cuts_.clear();
  if (!serialize(payload_, &payload_bytes_)) return false;
  FindLargeColumns(payload_bytes_, &payload_cuts_);
  if (samples_ == 0) return true;
  if (!serialize(columns_, &column_bytes_)) return false;
  FindLargeColumns(column_bytes_, &column_cuts_);
  return true;
}

}  // namespace xenprof::chunk
