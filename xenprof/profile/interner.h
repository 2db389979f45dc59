// Gives equal things of many chunks one id in a profile.
#ifndef XENPROF_PROFILE_INTERNER_H_
#define XENPROF_PROFILE_INTERNER_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "xenprof/merge/id_table.h"
#include "xenprof/profile/pair_index.h"
#include "xenprof/profile/profile.h"

namespace xenprof::profile {

class Interner {
 public:
  // Puts the entries with a fixed meaning into `profile`, which must be empty and outlive this.
  explicit Interner(Profile* profile);

  StringId String(absl::string_view text);
  uint32_t AddBinary(const Binary& binary);
  // Told apart by name, module and kind; the first one's binary and address stay.
  uint32_t AddFunction(const Function& function);
  // A function named after its address: told apart by module, kind and address, which its name is made of.
  // `make_name` is called for a new one only.
  template <typename MakeName>
  uint32_t AddUnnamedFunction(Function function, MakeName&& make_name) {
    bool added;
    const uint32_t id = FindOrAddUnnamed(function, &added);
    if (added) {
      function.name = profile_->strings.Add(make_name());
      profile_->functions.push_back(function);
    }
    return id;
  }
  uint32_t AddTask(const Task& task);
  uint32_t AddDomain(const Domain& domain);
  uint32_t AddHost(const Host& host);  // by hostname and boot id
  // kFunction: the frame of a function.
  uint32_t FunctionFrame(uint32_t function);
  // kAddress: the frame of an address whose lines are `lines`.
  uint32_t AddressFrame(uint32_t binary, uint64_t address, const std::vector<Line>& lines);
  // So much more may come.
  void Reserve(size_t nodes, size_t frames, size_t samples);
  uint32_t Child(uint32_t parent, uint32_t frame) {
    const auto [pair, is_new] = children_.Insert(parent, frame);
    if (is_new) profile_->nodes.push_back({parent, frame});
    return pair + 1;  // behind the root, nodes are in the order of their pairs
  }
  // Adds to the sample that agrees in everything but count and time.
  void AddSample(const Sample& sample);

 private:
  // All of a sample but its node.
  using SampleKey = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint8_t, uint8_t>;

  // The id of an unnamed function, or the next one, which it has to be given then.
  uint32_t FindOrAddUnnamed(const Function& function, bool* added);

  Profile* profile_;
  absl::flat_hash_map<absl::string_view, StringId> strings_;
  absl::flat_hash_map<std::tuple<StringId, std::string, FrameKind, bool, uint64_t>, uint32_t> binaries_;
  absl::flat_hash_map<std::tuple<StringId, StringId, FrameKind>, uint32_t> functions_;
  absl::flat_hash_map<std::tuple<uint32_t, uint32_t, uint32_t, StringId>, uint32_t> tasks_;
  absl::flat_hash_map<std::tuple<uint32_t, uint32_t, StringId, std::string, uint32_t>, uint32_t> domains_;
  std::vector<uint32_t> function_frames_;  // index: function; frame + 1
  absl::flat_hash_map<std::tuple<uint32_t, uint64_t, uint32_t, uint32_t>, uint32_t> address_frames_;
  merge::IdTable unnamed_;
  PairIndex children_;  // parent, frame
  absl::flat_hash_map<SampleKey, uint32_t> sample_keys_;
  SampleKey last_key_;
  uint32_t last_key_id_ = PairIndex::kNone;
  PairIndex samples_;  // node, key
};

}  // namespace xenprof::profile

#endif  // XENPROF_PROFILE_INTERNER_H_
