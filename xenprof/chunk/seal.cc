#include "xenprof/chunk/seal.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "xenprof/chunk/envelope.h"
#include "xenprof/chunk/utf8.h"

namespace xenprof::chunk {
namespace {

// Of strings and columns in one Symbols payload, about: what sealing holds at once, and far below what
// readers refuse.
constexpr size_t kMaxSymbolsBytes = size_t{4} << 20;

struct NamedPlace {
  uint64_t address;  // as looked up
  uint32_t frame;
  bool operator<(const NamedPlace& other) const { return address < other.address; }
};

// By mapping: every address that some stack needs a name for, ascending. A frame that is both a leaf and a
// caller is in twice.
std::vector<std::vector<NamedPlace>> PlacesToName(const merge::Tables& tables) {
  std::vector<std::vector<NamedPlace>> places(tables.mappings.size());
  enum : uint8_t { kLeaf = 1, kCaller = 2 };
  std::vector<uint8_t> uses(tables.frames.size(), 0);
  for (const merge::Stack& stack : tables.stacks) {
    if (stack.leaf != 0) uses[tables.nodes[stack.leaf].frame] |= kLeaf;
  }
  for (size_t i = 1; i < tables.nodes.size(); ++i) {
    const uint32_t parent = tables.nodes[i].parent;
    if (parent != 0) uses[tables.nodes[parent].frame] |= kCaller;
  }
  for (uint32_t i = 0; i < tables.frames.size(); ++i) {
    const merge::Frame& frame = tables.frames[i];
    if (frame.mapping == 0) continue;  // nobody knows what it was
    std::vector<NamedPlace>& of_mapping = places[frame.mapping];
    if ((uses[i] & kLeaf) != 0) of_mapping.push_back({frame.address, i});
    if ((uses[i] & kCaller) != 0 && frame.address != 0) of_mapping.push_back({frame.address - 1, i});
  }
  for (std::vector<NamedPlace>& of_mapping : places) std::sort(of_mapping.begin(), of_mapping.end());
  return places;
}

std::vector<uint64_t> Addresses(const std::vector<NamedPlace>& places) {
  std::vector<uint64_t> addresses;
  addresses.reserve(places.size());
  for (const NamedPlace& place : places) {
    if (addresses.empty() || addresses.back() != place.address) addresses.push_back(place.address);
  }
  return addresses;
}

symbols::MappingInfo Describe(const merge::Mapping& mapping) {
  symbols::MappingInfo info;
  info.kind = mapping.kind;
  info.name = mapping.name;
  info.build_id = mapping.build_id;
  info.is_file = mapping.is_file;
  info.deleted = mapping.deleted;
  info.pid = mapping.pid;
  info.start = mapping.start;
  info.end = mapping.end;
  return info;
}

class SymbolsBuilder {
 public:
  explicit SymbolsBuilder(const std::function<absl::Status(const proto::Payload&)>& write) : write_(write) {
    Begin();
  }

  absl::Status Add(uint32_t mapping, const symbols::Resolved& resolved) {
    Open(mapping);
    current_->set_source(ToUtf8(resolved.source));
    current_->set_problem(ToUtf8(resolved.problem));
    for (const symbols::Function& function : resolved.functions) {
      absl::Status status = MakeRoom(mapping);
      if (!status.ok()) return status;
      current_->add_function_start(function.start - last_start_);
      last_start_ = function.start;
      current_->add_function_size(function.size);
      current_->add_function_name(Intern(function.name));
      bytes_ += 8;
    }
    for (const symbols::Lines& lines : resolved.lines) {
      absl::Status status = MakeRoom(mapping);
      if (!status.ok()) return status;
      current_->add_line_address(lines.address - last_address_);
      last_address_ = lines.address;
      current_->add_line_depth(static_cast<uint32_t>(lines.entries.size()));
      for (const symbols::Lines::Entry& entry : lines.entries) {
        current_->add_line_function(Intern(entry.function));
        current_->add_line_file(Intern(entry.file));
        current_->add_line_number(entry.line);
      }
      bytes_ += 4 + 8 * lines.entries.size();
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    if (payload_.symbols().mappings().empty()) return absl::OkStatus();
    absl::Status status = write_(payload_);
    Begin();
    return status;
  }

 private:
  void Begin() {
    payload_.Clear();
    payload_.mutable_symbols()->add_strings("");
    ids_.clear();
    ids_[""] = 0;
    bytes_ = 0;
    current_ = nullptr;
  }

  void Open(uint32_t mapping) {
    current_ = payload_.mutable_symbols()->add_mappings();
    current_->set_mapping(mapping);
    last_start_ = last_address_ = 0;
    bytes_ += 64;
  }

  // When the payload is large: writes it and goes on with the same mapping in the next.
  absl::Status MakeRoom(uint32_t mapping) {
    if (bytes_ < kMaxSymbolsBytes) return absl::OkStatus();
    absl::Status status = Finish();
    Open(mapping);
    return status;
  }

  uint32_t Intern(const std::string& text) {
    const auto [found, is_new] =
        ids_.try_emplace(text, static_cast<uint32_t>(payload_.symbols().strings_size()));
    if (is_new) {
      payload_.mutable_symbols()->add_strings(ToUtf8(text));
      bytes_ += text.size() + 2;
    }
    return found->second;
  }

  const std::function<absl::Status(const proto::Payload&)>& write_;
  proto::Payload payload_;
  proto::MappingSymbols* current_ = nullptr;
  absl::flat_hash_map<std::string, uint32_t> ids_;
  uint64_t last_start_ = 0, last_address_ = 0;
  size_t bytes_ = 0;
};

}  // namespace

std::vector<std::vector<uint64_t>> AddressesToName(const merge::Tables& tables) {
  std::vector<std::vector<uint64_t>> addresses;
  for (const std::vector<NamedPlace>& places : PlacesToName(tables)) addresses.push_back(Addresses(places));
  return addresses;
}

absl::Status WriteSymbols(const merge::Tables& tables, symbols::Symbolizer* symbolizer,
                          const std::function<absl::Status(const proto::Payload&)>& write,
                          SealCounts* counts) {
  *counts = {tables.frames.size(), 0};
  if (symbolizer == nullptr) return absl::OkStatus();
  const std::vector<std::vector<NamedPlace>> places = PlacesToName(tables);
  std::vector<bool> named(tables.frames.size(), false);
  SymbolsBuilder builder(write);
  for (uint32_t mapping = 0; mapping < places.size(); ++mapping) {
    if (places[mapping].empty()) continue;
    const symbols::Resolved resolved =
        symbolizer->Resolve(Describe(tables.mappings[mapping]), Addresses(places[mapping]));
    absl::Status status = builder.Add(mapping, resolved);
    if (!status.ok()) return status;
    auto function = resolved.functions.begin();
    for (const NamedPlace& place : places[mapping]) {
      while (function != resolved.functions.end() && std::next(function) != resolved.functions.end() &&
             std::next(function)->start <= place.address) {
        ++function;
      }
      if (function != resolved.functions.end() && !function->name.empty() &&
          place.address >= function->start &&
          (function->size == 0 || place.address - function->start < function->size)) {
        named[place.frame] = true;
      }
    }
  }
  counts->named_frames = static_cast<uint64_t>(std::count(named.begin(), named.end(), true));
  return builder.Finish();
}

absl::Status SealFile(PartialFile* file, const merge::Tables& tables, symbols::Symbolizer* symbolizer,
                      const Totals& totals, const proto::Mode& mode, proto::Trailer::End end,
                      const WriterOptions& options) {
  const uint64_t before = file->bytes();
  EnvelopeEncoder encoder;
  std::string bytes;
  const auto append = [&](const proto::Payload& payload) -> absl::Status {
    if (!payload.SerializeToString(&bytes)) {
      return absl::ResourceExhaustedError(absl::StrCat(file->partial_path(), ": symbols too large to write"));
    }
    absl::StatusOr<absl::string_view> envelope = encoder.Encode({bytes, {}}, {}, options.symbols_level);
    if (!envelope.ok()) return envelope.status();
    return file->Append(*envelope);
  };
  SealCounts counts;
  absl::Status status = WriteSymbols(tables, symbolizer, append, &counts);
  if (status.ok()) {
    proto::Payload payload;
    proto::Trailer* trailer = payload.mutable_trailer();
    totals.Fill(trailer);
    *trailer->mutable_mode() = mode;
    trailer->set_end(end);
    trailer->set_frames(counts.frames);
    trailer->set_named_frames(counts.named_frames);
    status = append(payload);
  }
  if (status.ok()) status = file->Publish(options.sync, options.replace);
  if (!status.ok() && !file->published()) {
    absl::Status cut = file->CutBack(before);
    if (!cut.ok())
      status = absl::Status(status.code(), absl::StrCat(status.message(), "; then ", cut.message()));
  }
  return status;
}

}  // namespace xenprof::chunk
