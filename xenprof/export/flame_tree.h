// The tree a flame graph shows: everything, hosts, whose time it was, then functions from the outermost on.
#ifndef XENPROF_EXPORT_FLAME_TREE_H_
#define XENPROF_EXPORT_FLAME_TREE_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "xenprof/profile/profile.h"

namespace xenprof::exporter {

struct FlameLabel {
  enum class Type : uint8_t { kAll = 0, kHost = 1, kRoot = 2, kFunction = 3 };
  Type type = Type::kFunction;
  FrameKind kind = FrameKind::kUnknown;
  absl::string_view name;
  absl::string_view module;  // of a function
  uint64_t address = 0;      // of a function: see profile::Function
  bool own_name = false;     // made of the module's name and the address: no other label has it
};

struct FlameSelf {
  Origin origin;
  uint64_t count;
};

// Names are views of the profile's: it has to outlive the tree.
struct FlameTree {
  std::vector<FlameLabel> labels;
  // In preorder: node 0 is the root, children follow their parent by descending total, then by name.
  std::vector<uint32_t> depth;
  std::vector<uint32_t> label;
  std::vector<uint32_t> first_self;  // entries of node n: selfs[first_self[n]] .. selfs[first_self[n + 1]]
  std::vector<FlameSelf> selfs;
  std::deque<std::string> other_names;  // those the profile does not have

  size_t size() const { return depth.size(); }
};

// `profile` is by function. Hosts are a level of their own only when there are several.
FlameTree BuildFlameTree(const profile::Profile& profile);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_FLAME_TREE_H_
