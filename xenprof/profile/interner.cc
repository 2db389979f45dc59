#include "xenprof/profile/interner.h"

#include <algorithm>
#include <utility>

namespace xenprof::profile {

Interner::Interner(Profile* profile) : profile_(profile) {
  String("");
  profile_->binaries.emplace_back();
  profile_->nodes.emplace_back();
  profile_->tasks.emplace_back();
  profile_->domains.emplace_back();
}

StringId Interner::String(absl::string_view text) {
  const auto found = strings_.find(text);
  if (found != strings_.end()) return found->second;
  const StringId id = profile_->strings.Add(text);
  strings_.emplace(profile_->strings[id], id);
  return id;
}

uint32_t Interner::AddBinary(const Binary& binary) {
  // Where a file was mapped says nothing about it; two kernels without build id differ by where they are.
  const uint64_t place = binary.is_file ? 0 : binary.start;
  const auto [entry, is_new] = binaries_.try_emplace(
      {binary.name, binary.build_id, binary.kind, binary.is_file, place}, profile_->binaries.size());
  if (is_new) {
    profile_->binaries.push_back(binary);
  } else {
    Binary& known = profile_->binaries[entry->second];
    if (known.symbol_source == 0) known.symbol_source = binary.symbol_source;
    if (known.symbol_problem == 0) known.symbol_problem = binary.symbol_problem;
  }
  return entry->second;
}

uint32_t Interner::AddFunction(const Function& function) {
  const auto [entry, is_new] =
      functions_.try_emplace({function.name, function.module, function.kind}, profile_->functions.size());
  if (is_new) profile_->functions.push_back(function);
  return entry->second;
}

uint32_t Interner::FindOrAddUnnamed(const Function& function, bool* added) {
  const uint64_t key =
      function.address ^ uint64_t { function.module } << 44 ^ static_cast<uint64_t>(function.kind) << 40;
  const uint64_t hash = (key ^ key >> 32) * 0x9e3779b97f4a7c15;
  return unnamed_.FindOrAdd(hash, static_cast<uint32_t>(profile_->functions.size()), added, [&](uint32_t id) {
    const Function& known = profile_->functions[id];
    return known.address == function.address && known.module == function.module &&
           known.kind == function.kind;
  });
}

uint32_t Interner::AddTask(const Task& task) {
  const auto [entry, is_new] =
      tasks_.try_emplace({task.host, task.pid, task.tid, task.comm}, profile_->tasks.size());
  if (is_new) profile_->tasks.push_back(task);
  return entry->second;
}

uint32_t Interner::AddDomain(const Domain& domain) {
  const auto [entry, is_new] = domains_.try_emplace(
      {domain.host, domain.domid, domain.name, domain.uuid, domain.method << 8 | domain.confidence_percent},
      profile_->domains.size());
  if (is_new) profile_->domains.push_back(domain);
  return entry->second;
}

uint32_t Interner::AddHost(const Host& host) {
  for (size_t i = 0; i < profile_->hosts.size(); ++i) {
    const Host& known = profile_->hosts[i];
    if (known.hostname == host.hostname && known.boot_id == host.boot_id) return i;
  }
  profile_->hosts.push_back(host);
  return profile_->hosts.size() - 1;
}

uint32_t Interner::FunctionFrame(uint32_t function) {
  if (function_frames_.size() <= function) function_frames_.resize(profile_->functions.size());
  uint32_t& frame = function_frames_[function];
  if (frame == 0) {
    const Function& of = profile_->functions[function];
    profile_->frames.push_back({of.binary, of.address, static_cast<uint32_t>(profile_->lines.size()), 1});
    profile_->lines.push_back({function, 0, 0});
    frame = profile_->frames.size();
  }
  return frame - 1;
}

uint32_t Interner::AddressFrame(uint32_t binary, uint64_t address, const std::vector<Line>& lines) {
  // Chunks may know an address by different names (a file without build id that was replaced): the outermost
  // function and its line tell them apart.
  const auto [entry, is_new] = address_frames_.try_emplace(
      {binary, address, lines.back().function, lines.front().line}, profile_->frames.size());
  if (is_new) {
    profile_->frames.push_back({binary, address, static_cast<uint32_t>(profile_->lines.size()),
                                static_cast<uint32_t>(lines.size())});
    profile_->lines.insert(profile_->lines.end(), lines.begin(), lines.end());
  }
  return entry->second;
}

void Interner::Reserve(size_t nodes, size_t frames, size_t samples) {
  // Of further chunks most nodes are known already: growing as usual serves them better.
  if (profile_->nodes.size() > 1) return;
  profile_->nodes.reserve(nodes);
  children_.Reserve(nodes);
  profile_->frames.reserve(frames);
  profile_->lines.reserve(frames);
  profile_->functions.reserve(frames);
  function_frames_.reserve(frames);
  profile_->strings.Reserve(frames);
  profile_->samples.reserve(samples);
  samples_.Reserve(nodes);
}

void Interner::AddSample(const Sample& sample) {
  const SampleKey key = {
      sample.task, sample.domain, sample.cpu, sample.host, static_cast<uint8_t>(sample.origin), sample.flags};
  if (last_key_id_ == PairIndex::kNone || key != last_key_) {
    last_key_ = key;
    last_key_id_ = sample_keys_.try_emplace(key, sample_keys_.size()).first->second;
  }
  const auto [entry, is_new] = samples_.Insert(sample.node, last_key_id_);
  if (is_new) {
    profile_->samples.push_back(sample);
    return;
  }
  Sample& known = profile_->samples[entry];
  known.count += sample.count;
  known.time_ns += sample.time_ns;
}

}  // namespace xenprof::profile
