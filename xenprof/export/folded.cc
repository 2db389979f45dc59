#include "xenprof/export/folded.h"

#include <charconv>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "xenprof/export/roots.h"
#include "xenprof/profile/pair_index.h"

namespace xenprof::exporter {

using profile::Profile;

namespace {

void AppendName(absl::string_view name, std::string* out) {
  if (name.empty()) name = "[no name]";
  const size_t start = out->size();
  out->append(name.data(), name.size());
  for (size_t i = start; i < out->size(); ++i) {
    char& c = (*out)[i];
    if (c == ';') {
      c = ':';
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      c = '?';
    }
  }
}

absl::string_view Suffix(FrameKind kind) {
  switch (kind) {
    case FrameKind::kHypervisor:
      return "_[x]";
    case FrameKind::kDom0Kernel:
      return "_[k]";
    case FrameKind::kGuestKernel:
    case FrameKind::kGuestUser:
      return "_[g]";
    default:
      return "";
  }
}

// Every frame's text with the ';' before it, in one string.
class FrameTexts {
 public:
  explicit FrameTexts(const Profile& profile) {
    ends_.reserve(profile.frames.size() + 1);
    ends_.push_back(0);
    for (const profile::Frame& frame : profile.frames) {
      const profile::Function& function = profile.function_of(frame);
      text_.push_back(';');
      AppendName(profile.str(function.name), &text_);
      absl::StrAppend(&text_, Suffix(function.kind));
      ends_.push_back(text_.size());
    }
  }
  absl::string_view operator[](uint32_t frame) const {
    return absl::string_view(text_).substr(ends_[frame], ends_[frame + 1] - ends_[frame]);
  }

 private:
  std::string text_;
  std::vector<size_t> ends_;
};

}  // namespace

absl::Status ExportFolded(const Profile& profile, Output* output) {
  if (profile.granularity != profile::Granularity::kFunction) {
    return absl::InvalidArgumentError("folded stacks are made of a profile by function");
  }
  const Roots roots = AssignRoots(profile);
  std::vector<std::string> root_texts;
  for (const Root& root : roots.roots) {
    std::string text;
    if (roots.several_hosts) {
      AppendName(profile.hosts[root.host].hostname, &text);
      text.push_back(';');
    }
    AppendName(root.label, &text);
    root_texts.push_back(std::move(text));
  }

  struct Line {
    uint32_t root, node;
    uint64_t count;
  };
  std::vector<Line> lines;
  profile::PairIndex index;
  index.Reserve(profile.nodes.size(), profile.samples.size());
  lines.reserve(profile.samples.size());
  for (size_t i = 0; i < profile.samples.size(); ++i) {
    const profile::Sample& sample = profile.samples[i];
    const auto [line, is_new] = index.Insert(sample.node, roots.of_sample[i]);
    if (is_new) lines.push_back({roots.of_sample[i], sample.node, 0});
    lines[line].count += sample.count;
  }

  const FrameTexts texts(profile);
  BufferedOutput out(output);
  std::vector<absl::string_view> path;
  uint64_t written = 0;
  const auto append = [](absl::string_view text, char* to) {
    std::memcpy(to, text.data(), text.size());
    return to + text.size();
  };
  for (const Line& line : lines) {
    constexpr size_t kCountBytes = 22;  // a blank, 20 digits, a newline
    size_t bytes = root_texts[line.root].size() + kCountBytes;
    path.clear();
    for (uint32_t node = line.node; node != 0; node = profile.nodes[node].parent) {
      path.push_back(texts[profile.nodes[node].frame]);
      bytes += path.back().size();
    }
    char* to = append(root_texts[line.root], out.Room(bytes));
    for (size_t i = path.size(); i-- > 0;) to = append(path[i], to);
    *to++ = ' ';
    to = std::to_chars(to, to + kCountBytes - 2, line.count).ptr;
    *to++ = '\n';
    out.Advance(to);
    written += line.count;
  }
  absl::Status flushed = out.Flush();
  if (!flushed.ok()) return flushed;
  return CheckTotal("folded", written, profile.totals.samples);
}

}  // namespace xenprof::exporter
