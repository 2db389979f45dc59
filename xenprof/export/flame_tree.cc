#include "xenprof/export/flame_tree.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "xenprof/export/roots.h"
#include "xenprof/profile/pair_index.h"

namespace xenprof::exporter {

using profile::Profile;

namespace {

class TreeBuilder {
 public:
  explicit TreeBuilder(const Profile& profile)
      : profile_(profile), roots_(AssignRoots(profile)), function_labels_(profile.functions.size()) {}

  FlameTree Build() {
    AddNode(0, AddLabel({FlameLabel::Type::kAll, FrameKind::kUnknown, "all", "", 0}));
    AddRoots();
    nodes_.reserve(profile_.nodes.size());
    places_.Reserve(profile_.nodes.size());
    selfs_.reserve(profile_.samples.size());
    place_of_pair_.reserve(profile_.nodes.size());
    for (size_t i = 0; i < profile_.samples.size(); ++i) {
      const profile::Sample& sample = profile_.samples[i];
      selfs_.push_back({Place(roots_.of_sample[i], sample.node), sample.origin, sample.count});
    }
    SumTotals();
    SortChildren();
    Emit();
    return std::move(tree_);
  }

 private:
  struct Node {
    uint32_t parent, label;
  };
  struct Self {
    uint32_t node;
    Origin origin;
    uint64_t count;
  };

  struct SortKey {
    uint64_t value;  // of what is sorted by at the moment
    uint32_t node;
  };

  uint32_t AddLabel(FlameLabel label) {
    tree_.labels.push_back(std::move(label));
    return static_cast<uint32_t>(tree_.labels.size() - 1);
  }
  uint32_t AddNode(uint32_t parent, uint32_t label) {
    nodes_.push_back({parent, label});
    return static_cast<uint32_t>(nodes_.size() - 1);
  }

  absl::string_view Keep(const std::string& name) { return tree_.other_names.emplace_back(name); }

  void AddRoots() {
    absl::flat_hash_map<std::string, uint32_t> hosts;
    for (const Root& root : roots_.roots) {
      uint32_t parent = 0;
      if (roots_.several_hosts) {
        const std::string& hostname = profile_.hosts[root.host].hostname;
        const auto [entry, is_new] = hosts.try_emplace(hostname, 0);
        if (is_new) {
          entry->second =
              AddNode(0, AddLabel({FlameLabel::Type::kHost, FrameKind::kUnknown, Keep(hostname), "", 0}));
        }
        parent = entry->second;
      }
      root_nodes_.push_back(
          AddNode(parent, AddLabel({FlameLabel::Type::kRoot, FrameKind::kUnknown, Keep(root.label), "", 0})));
    }
  }

  uint32_t FunctionLabel(uint32_t id) {
    uint32_t& label = function_labels_[id];
    if (label == 0) {  // 0 is "all"
      const profile::Function& function = profile_.functions[id];
      const bool own_name = !function.named && function.kind != FrameKind::kGuestKernel &&
                            function.kind != FrameKind::kGuestUser;
      label = AddLabel({FlameLabel::Type::kFunction, function.kind, profile_.str(function.name),
                        profile_.str(function.module), function.address, own_name});
    }
    return label;
  }

  // The tree's node for a stack of the profile below a root.
  uint32_t Place(uint32_t root, uint32_t stack) {
    // Pairs come leaf first, tree nodes root first: a new pair's place is filled in on the way back.
    path_.clear();
    uint32_t place = root_nodes_[root];
    for (uint32_t node = stack; node != 0; node = profile_.nodes[node].parent) {
      const auto [pair, is_new] = places_.Insert(node, root);
      if (!is_new) {
        place = place_of_pair_[pair];
        break;
      }
      place_of_pair_.push_back(0);
      path_.push_back({node, pair});
    }
    for (size_t i = path_.size(); i-- > 0;) {
      const uint32_t frame = profile_.nodes[path_[i].first].frame;
      place = AddNode(place, FunctionLabel(profile_.line(profile_.frames[frame]).function));
      place_of_pair_[path_[i].second] = place;
    }
    return place;
  }

  void SumTotals() {
    totals_.resize(nodes_.size());
    for (const Self& self : selfs_) totals_[self.node] += self.count;
    for (size_t i = nodes_.size(); i-- > 1;) totals_[nodes_[i].parent] += totals_[i];
  }

  void SortChildren() {
    const size_t count = nodes_.size();
    first_child_.assign(count + 2, 0);
    children_.resize(count - 1);
    for (size_t i = 1; i < count; ++i) ++first_child_[nodes_[i].parent + 2];
    for (size_t i = 2; i < first_child_.size(); ++i) first_child_[i] += first_child_[i - 1];
    for (size_t i = 1; i < count; ++i) children_[first_child_[nodes_[i].parent + 1]++] = i;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t first = first_child_[i], last = first_child_[i + 1];
      if (last - first < 2) continue;
      keys_.clear();
      for (uint32_t c = first; c < last; ++c) keys_.push_back({0, children_[c]});
      SortSiblings(absl::MakeSpan(keys_), 0);
      for (uint32_t c = first; c < last; ++c) children_[c] = keys_[c - first].node;
    }
  }

  // By descending total, then by name, module and number.
  bool IsBefore(uint32_t a, uint32_t b) const {
    if (totals_[a] != totals_[b]) return totals_[a] > totals_[b];
    const FlameLabel &left = tree_.labels[nodes_[a].label], &right = tree_.labels[nodes_[b].label];
    return std::tie(left.name, left.module, a) < std::tie(right.name, right.module, b);
  }

  // Below one node there may be a hundred thousand unnamed functions of a program, with equal totals and
  // names that begin alike: they are sorted by one number at a time, the total first, then eight bytes of the
  // name a level. `keys` agree in the levels before.
  void SortSiblings(absl::Span<SortKey> keys, size_t level) {
    constexpr size_t kFew = 16, kLevels = 8;
    if (keys.size() < kFew || level == kLevels) {
      std::sort(keys.begin(), keys.end(),
                [this](const SortKey& a, const SortKey& b) { return IsBefore(a.node, b.node); });
      return;
    }
    for (SortKey& key : keys) key.value = level == 0 ? ~totals_[key.node] : NamePart(key.node, level - 1);
    std::sort(keys.begin(), keys.end(), [](const SortKey& a, const SortKey& b) { return a.value < b.value; });
    for (size_t first = 0, next; first < keys.size(); first = next) {
      next = first + 1;
      while (next < keys.size() && keys[next].value == keys[first].value) ++next;
      if (next - first > 1) SortSiblings(keys.subspan(first, next - first), level + 1);
    }
  }

  // Eight bytes of a node's name; compares as they do, with zeros behind the end.
  uint64_t NamePart(uint32_t node, size_t part) const {
    const absl::string_view name = tree_.labels[nodes_[node].label].name;
    uint64_t value = 0;
    for (size_t i = part * sizeof(value); i < (part + 1) * sizeof(value); ++i) {
      value = value << 8 | (i < name.size() ? static_cast<unsigned char>(name[i]) : 0);
    }
    return value;
  }

  void Emit() {
    // Entries side by side for each node: selfs[first[n]] .. selfs[first[n + 1]].
    std::vector<uint32_t> first(nodes_.size() + 2);
    for (const Self& self : selfs_) ++first[self.node + 2];
    for (size_t i = 2; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<FlameSelf> selfs(selfs_.size());
    for (const Self& self : selfs_) selfs[first[self.node + 1]++] = {self.origin, self.count};
    tree_.selfs.reserve(selfs.size());

    std::vector<std::pair<uint32_t, uint32_t>> open = {{0, 0}};  // node, depth
    tree_.depth.reserve(nodes_.size());
    tree_.label.reserve(nodes_.size());
    tree_.first_self.reserve(nodes_.size() + 1);
    while (!open.empty()) {
      const auto [node, depth] = open.back();
      open.pop_back();
      tree_.depth.push_back(depth);
      tree_.label.push_back(nodes_[node].label);
      tree_.first_self.push_back(tree_.selfs.size());
      if (first[node + 1] - first[node] > 1) {
        std::sort(selfs.begin() + first[node], selfs.begin() + first[node + 1],
                  [](const FlameSelf& a, const FlameSelf& b) { return a.origin < b.origin; });
      }
      for (uint32_t i = first[node]; i < first[node + 1]; ++i) {
        if (i > first[node] && selfs[i].origin == selfs[i - 1].origin) {
          tree_.selfs.back().count += selfs[i].count;
        } else {
          tree_.selfs.push_back(selfs[i]);
        }
      }
      for (uint32_t i = first_child_[node + 1]; i-- > first_child_[node];)
        open.emplace_back(children_[i], depth + 1);
    }
    tree_.first_self.push_back(tree_.selfs.size());
  }

  const Profile& profile_;
  const Roots roots_;
  FlameTree tree_;
  std::vector<Node> nodes_;  // a parent before its children
  std::vector<uint32_t> root_nodes_, function_labels_;
  profile::PairIndex places_;  // node of the profile, root
  std::vector<uint32_t> place_of_pair_;
  std::vector<Self> selfs_;
  std::vector<uint64_t> totals_;
  std::vector<uint32_t> first_child_, children_;
  std::vector<std::pair<uint32_t, uint32_t>> path_;  // scratch: node of the profile, pair
  std::vector<SortKey> keys_;                        // scratch
};

}  // namespace

FlameTree BuildFlameTree(const Profile& profile) { return TreeBuilder(profile).Build(); }

}  // namespace xenprof::exporter
