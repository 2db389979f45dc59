#include "xenprof/export/function_totals.h"

#include <algorithm>
#include <tuple>

#include "absl/container/flat_hash_map.h"

namespace xenprof::exporter {

using profile::Frame;
using profile::Profile;

namespace {

// Adds each node's total to the functions of its frame, except those that are already further out on the same
// path.
class TotalsWalk {
 public:
  TotalsWalk(const Profile& profile, std::vector<FunctionTotal>* functions)
      : profile_(profile), functions_(functions), depth_on_path_(profile.functions.size()) {}

  void Run(const std::vector<uint64_t>& node_totals) {
    const size_t count = profile_.nodes.size();
    // Children of each node, side by side: first_child[n] .. first_child[n + 1].
    std::vector<uint32_t> first_child(count + 2), children(count);
    for (size_t i = 1; i < count; ++i) ++first_child[profile_.nodes[i].parent + 2];
    for (size_t i = 2; i < first_child.size(); ++i) first_child[i] += first_child[i - 1];
    for (size_t i = 1; i < count; ++i) children[first_child[profile_.nodes[i].parent + 1]++] = i;

    // Not by recursion: a hostile file may make a stack of millions of frames.
    struct Open {
      uint32_t node, next_child;
    };
    std::vector<Open> path = {{0, first_child[0]}};
    while (!path.empty()) {
      Open& open = path.back();
      if (open.next_child < first_child[open.node + 1]) {
        const uint32_t child = children[open.next_child++];
        Enter(child, node_totals[child]);
        path.push_back({child, first_child[child]});
      } else {
        if (open.node != 0) Leave(open.node);
        path.pop_back();
      }
    }
  }

 private:
  void Enter(uint32_t node, uint64_t total) {
    const Frame& frame = profile_.frames[profile_.nodes[node].frame];
    for (uint32_t i = 0; i < frame.line_count; ++i) {
      const uint32_t function = profile_.line(frame, i).function;
      if (depth_on_path_[function]++ == 0) (*functions_)[function].total += total;
    }
  }
  void Leave(uint32_t node) {
    const Frame& frame = profile_.frames[profile_.nodes[node].frame];
    for (uint32_t i = 0; i < frame.line_count; ++i) --depth_on_path_[profile_.line(frame, i).function];
  }

  const Profile& profile_;
  std::vector<FunctionTotal>* functions_;
  std::vector<uint32_t> depth_on_path_;
};

}  // namespace

FunctionTotals SumFunctions(const Profile& profile) {
  FunctionTotals out;
  out.functions.resize(profile.functions.size());
  for (size_t i = 0; i < out.functions.size(); ++i) out.functions[i].function = i;
  const bool with_lines = profile.granularity == profile::Granularity::kAddress;
  absl::flat_hash_map<std::tuple<uint32_t, profile::StringId, uint32_t>, uint64_t> lines;

  std::vector<uint64_t> node_totals(profile.nodes.size());
  for (const profile::Sample& sample : profile.samples) {
    if (sample.node == 0) {
      out.without_stack += sample.count;
      continue;
    }
    node_totals[sample.node] += sample.count;
    const profile::Line& innermost = profile.line(profile.frames[profile.nodes[sample.node].frame]);
    out.functions[innermost.function].self += sample.count;
    if (with_lines && innermost.line != 0) {
      lines[{innermost.function, innermost.file, innermost.line}] += sample.count;
    }
  }
  for (size_t i = profile.nodes.size(); i-- > 1;) {
    if (profile.nodes[i].parent != 0) node_totals[profile.nodes[i].parent] += node_totals[i];
  }
  TotalsWalk(profile, &out.functions).Run(node_totals);

  out.functions.erase(
      std::remove_if(out.functions.begin(), out.functions.end(), [](const auto& f) { return f.total == 0; }),
      out.functions.end());
  std::sort(out.functions.begin(), out.functions.end(), [&](const FunctionTotal& a, const FunctionTotal& b) {
    if (a.self != b.self) return a.self > b.self;
    if (a.total != b.total) return a.total > b.total;
    return profile.str(profile.functions[a.function].name) < profile.str(profile.functions[b.function].name);
  });
  for (const auto& [key, self] : lines) {
    out.lines.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), self});
  }
  std::sort(out.lines.begin(), out.lines.end(), [](const LineTotal& a, const LineTotal& b) {
    return std::tie(b.self, a.function, a.file, a.line) < std::tie(a.self, b.function, b.file, b.line);
  });
  return out;
}

}  // namespace xenprof::exporter
