// The tree a flame graph shows: everything, hosts, whose time it was, then functions from the outermost on.
#ifndef XENPROF_EXPORT_FLAME_TREE_H_
#define XENPROF_EXPORT_FLAME_TREE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "xenprof/profile/profile.h"

namespace xenprof::exporter {

struct FlameLabel {
  enum class Type : uint8_t { kAll = 0, kHost = 1, kRoot = 2, kFunction = 3 };
  Type type = Type::kFunction;
  FrameKind kind = FrameKind::kUnknown;
  std::string name;
  std::string module;    // of a function
  uint64_t address = 0;  // of a function: see profile::Function
};

struct FlameSelf {
  Origin origin;
  uint64_t count;
};

struct FlameTree {
  std::vector<FlameLabel> labels;
  // In preorder: node 0 is the root, children follow their parent by descending total, then by name.
  std::vector<uint32_t> depth;
  std::vector<uint32_t> label;
  std::vector<uint32_t> first_self;  // entries of node n: selfs[first_self[n]] .. selfs[first_self[n + 1]]
  std::vector<FlameSelf> selfs;

  size_t size() const { return depth.size(); }
};

// `profile` is by function. Hosts are a level of their own only when there are several.
FlameTree BuildFlameTree(const profile::Profile& profile);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_FLAME_TREE_H_
