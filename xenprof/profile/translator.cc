#include "xenprof/profile/translator.h"

#include <charconv>

#include "absl/strings/match.h"

namespace xenprof::profile {

absl::string_view ModuleName(absl::string_view mapping_name) {
  if (mapping_name.empty()) return "[unknown]";
  if (mapping_name.front() == '[' || absl::StartsWith(mapping_name, "//")) return mapping_name;
  const size_t slash = mapping_name.rfind('/');
  if (slash == absl::string_view::npos || slash + 1 == mapping_name.size()) return mapping_name;
  return mapping_name.substr(slash + 1);
}

absl::string_view TaskName(const merge::Task& task) {
  return task.comm.empty() && task.pid == 0 ? "swapper" : absl::string_view(task.comm);
}

std::string UnnamedFunction(const merge::Mapping& mapping, uint64_t address) {
  if (mapping.kind == FrameKind::kGuestKernel) return "[guest kernel]";
  if (mapping.kind == FrameKind::kGuestUser) return "[guest user]";
  // What stands for the callers behind a broken chain of frame pointers.
  if (address == 0 && mapping.name == "[unknown]") return mapping.name;
  // By hand: a chunk of stripped programs has hundreds of thousands of these.
  char digits[16];
  char* const end = std::to_chars(digits, digits + sizeof(digits), address, 16).ptr;
  const absl::string_view module = ModuleName(mapping.name), mark = "+0x";
  std::string name;
  name.reserve(module.size() + mark.size() + sizeof(digits));
  name.append(module.data(), module.size()).append(mark.data(), mark.size()).append(digits, end);
  return name;
}

Translator::Translator(const chunk::ChunkDecoder& decoder, uint32_t host, Granularity granularity,
                       bool inlines, Interner* interner)
    : decoder_(decoder),
      host_(host),
      granularity_(granularity),
      inlines_(inlines),
      interner_(interner),
      binaries_(decoder.tables().mappings.size()),
      modules_(decoder.tables().mappings.size()),
      tasks_(decoder.tables().tasks.size()),
      domains_(decoder.domains().size()),
      inner_nodes_(decoder.tables().nodes.size()),
      functions_(decoder.tables().mappings.size()) {
  frames_[0].resize(decoder.tables().frames.size());
  frames_[1].resize(decoder.tables().frames.size());
}

uint32_t Translator::Task(uint32_t task) {
  uint32_t& known = tasks_[task];
  if (known == 0) {
    const merge::Task& from = decoder_.tables().tasks[task];
    known = 1 + interner_->AddTask(
                    {host_, from.pid, from.tid, interner_->String(TaskName(from)), from.kernel_thread});
  }
  return known - 1;
}

uint32_t Translator::TaskOfName(uint32_t task) {
  uint32_t& known = tasks_[task];
  if (known == 0) {
    const absl::string_view name = TaskName(decoder_.tables().tasks[task]);
    known = 1 + interner_->AddTask({host_, 0, 0, interner_->String(name), false});
  }
  return known - 1;
}

uint32_t Translator::Domain(uint32_t domain) {
  if (domain == 0) return 0;
  uint32_t& known = domains_[domain];
  if (known == 0) {
    const proto::Domain& from = decoder_.domains()[domain];
    known = 1 + interner_->AddDomain({host_, from.domid(), interner_->String(from.name()), from.uuid(),
                                      static_cast<uint32_t>(from.method()), from.confidence_percent()});
  }
  return known - 1;
}

uint32_t Translator::Binary(uint32_t mapping) {
  if (mapping == 0) return 0;
  uint32_t& known = binaries_[mapping];
  if (known == 0) {
    const merge::Mapping& from = decoder_.tables().mappings[mapping];
    profile::Binary binary;
    binary.kind = from.kind;
    binary.name = interner_->String(from.name);
    binary.build_id = from.build_id;
    binary.is_file = from.is_file;
    binary.deleted = from.deleted;
    binary.start = from.start;
    binary.end = from.end;
    binary.symbol_source = interner_->String(decoder_.SymbolSource(mapping));
    binary.symbol_problem = interner_->String(decoder_.SymbolProblem(mapping));
    known = 1 + interner_->AddBinary(binary);
  }
  return known - 1;
}

StringId Translator::Module(uint32_t mapping) {
  uint32_t& known = modules_[mapping];
  if (known == 0) known = 1 + interner_->String(ModuleName(decoder_.tables().mappings[mapping].name));
  return known - 1;
}

uint32_t Translator::FunctionAt(uint32_t mapping, uint64_t raw_address, uint64_t lookup_address,
                                absl::string_view inlined_name) {
  const merge::Mapping& from = decoder_.tables().mappings[mapping];
  if (!inlined_name.empty()) {
    return interner_->AddFunction({.name = interner_->String(inlined_name),
                                   .module = Module(mapping),
                                   .kind = from.kind,
                                   .named = true,
                                   .binary = Binary(mapping),
                                   .address = lookup_address});
  }
  const chunk::ChunkDecoder::Function* const found = decoder_.FindFunction(mapping, lookup_address);
  if (found == nullptr || (found->name.empty() && found->size == 0)) {
    return AddFunctionAt(mapping, raw_address, {});
  }
  // Most addresses lie in a function met before: nothing to compare by text then.
  const absl::Span<const chunk::ChunkDecoder::Function> all = decoder_.FunctionsOf(mapping);
  std::vector<uint32_t>& functions = functions_[mapping];
  if (functions.empty()) functions.resize(all.size());
  uint32_t& known = functions[static_cast<size_t>(found - all.data())];
  if (known == 0) known = 1 + AddFunctionAt(mapping, raw_address, *found);
  return known - 1;
}

uint32_t Translator::AddFunctionAt(uint32_t mapping, uint64_t raw_address,
                                   const chunk::ChunkDecoder::Function& found) {
  const merge::Mapping& from = decoder_.tables().mappings[mapping];
  Function function;
  function.binary = Binary(mapping);
  function.kind = from.kind;
  function.module = Module(mapping);
  if (found) {
    function.named = true;
    function.name = interner_->String(found.name);
    function.address = found.start;
  } else {
    if (found.size != 0) raw_address = found.start;  // its bounds are known
    function.address = raw_address;
    if (from.kind != FrameKind::kGuestKernel && from.kind != FrameKind::kGuestUser) {
      return interner_->AddUnnamedFunction(function, [&] { return UnnamedFunction(from, raw_address); });
    }
    function.name = interner_->String(UnnamedFunction(from, raw_address));
  }
  return interner_->AddFunction(function);
}

uint32_t Translator::TranslateFrame(uint32_t frame, bool is_leaf) {
  const merge::Frame& from = decoder_.tables().frames[frame];
  const uint64_t lookup = decoder_.LookupAddress(frame, is_leaf);
  lines_.clear();
  if (inlines_) {
    const auto lines = decoder_.LinesFor(from.mapping, lookup);
    for (size_t i = 0; i < lines.size(); ++i) {
      // The outermost entry is the function itself: its symbol, when there is one, is the name everybody else
      // shows.
      const bool outermost = i + 1 == lines.size();
      const bool has_symbol = outermost && decoder_.FunctionFor(from.mapping, lookup);
      const uint32_t function = FunctionAt(from.mapping, from.address, lookup,
                                           has_symbol ? absl::string_view() : lines[i].function);
      lines_.push_back({function, interner_->String(lines[i].file), lines[i].line});
    }
  }
  if (lines_.empty()) lines_.push_back({FunctionAt(from.mapping, from.address, lookup, {}), 0, 0});

  if (granularity_ == Granularity::kAddress) {
    return 1 + interner_->AddressFrame(Binary(from.mapping), lookup, lines_);
  }
  if (lines_.size() == 1) return 1 + interner_->FunctionFrame(lines_.front().function);
  std::vector<uint32_t>& list = frame_lists_.emplace_back();
  for (const Line& line : lines_) list.push_back(interner_->FunctionFrame(line.function));
  return kSeveral | static_cast<uint32_t>(frame_lists_.size() - 1);
}

uint32_t Translator::Append(uint32_t parent, uint32_t frames) {
  if ((frames & kSeveral) == 0) return interner_->Child(parent, frames - 1);
  const std::vector<uint32_t>& list = frame_lists_[frames & ~kSeveral];
  for (size_t i = list.size(); i-- > 0;) parent = interner_->Child(parent, list[i]);
  return parent;
}

uint32_t Translator::Inner(uint32_t node) {
  const std::vector<merge::Node>& nodes = decoder_.tables().nodes;
  path_.clear();
  while (node != 0 && inner_nodes_[node] == 0) {
    path_.push_back(node);
    node = nodes[node].parent;
  }
  uint32_t translated = node == 0 ? 0 : inner_nodes_[node] - 1;
  for (size_t i = path_.size(); i-- > 0;) {
    translated = Append(translated, Frames(nodes[path_[i]].frame, /*is_leaf=*/false));
    inner_nodes_[path_[i]] = translated + 1;
  }
  return translated;
}

uint32_t Translator::Node(uint32_t stack) {
  const uint32_t leaf = decoder_.tables().stacks[stack].leaf;
  if (leaf == 0) return 0;  // an empty stack is the root itself
  const merge::Node& node = decoder_.tables().nodes[leaf];
  const uint32_t frames = Frames(node.frame, /*is_leaf=*/true);
  return Append(Inner(node.parent), frames);
}

}  // namespace xenprof::profile
