#include "xenprof/export/folded.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "xenprof/export/roots.h"
#include "xenprof/profile/pair_index.h"

namespace xenprof::exporter {

using profile::Profile;

namespace {

// For each byte, what stands for it in a name: most stand for themselves.
constexpr std::array<char, 256> kShownAs = [] {
  std::array<char, 256> shown = {};
  for (int i = 0; i < 256; ++i) {
    shown[static_cast<size_t>(i)] = i == ';' ? ':' : i < 0x20 || i == 0x7f ? '?' : static_cast<char>(i);
  }
  return shown;
}();

constexpr absl::string_view kNoName = "[no name]";

// Writes as many bytes as `name` has; returns their end.
char* PutName(absl::string_view name, char* to) {
  for (const char c : name) *to++ = kShownAs[static_cast<unsigned char>(c)];
  return to;
}

void AppendName(absl::string_view name, std::string* out) {
  if (name.empty()) name = kNoName;
  const size_t start = out->size();
  out->resize(start + name.size());
  PutName(name, out->data() + start);
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

// Texts are copied in pieces of this size: most are shorter, and a call would cost more than the bytes.
constexpr size_t kPieceBytes = 16;

// Writes `text`; returns its end. Reads and writes up to kPieceBytes - 1 bytes more.
char* PutText(absl::string_view text, char* to) {
  for (size_t at = 0; at < text.size(); at += kPieceBytes) {
    std::memcpy(to + at, text.data() + at, kPieceBytes);
  }
  return to + text.size();
}

// Every frame's text with the ';' before it, one behind the other.
class FrameTexts {
 public:
  explicit FrameTexts(const Profile& profile) {
    size_t most = kPieceBytes;
    for (const profile::Frame& frame : profile.frames) {
      const profile::Function& function = profile.function_of(frame);
      most += 1 + NameOf(profile, function).size() + Suffix(function.kind).size();
    }
    text_ = std::make_unique_for_overwrite<char[]>(most);
    ends_.reserve(profile.frames.size() + 1);
    ends_.push_back(0);
    char* to = text_.get();
    for (const profile::Frame& frame : profile.frames) {
      const profile::Function& function = profile.function_of(frame);
      *to++ = ';';
      to = PutName(NameOf(profile, function), to);
      const absl::string_view suffix = Suffix(function.kind);
      to = std::copy(suffix.begin(), suffix.end(), to);
      ends_.push_back(static_cast<size_t>(to - text_.get()));
    }
  }
  // As PutText reads it.
  absl::string_view operator[](uint32_t frame) const {
    return {text_.get() + ends_[frame], ends_[frame + 1] - ends_[frame]};
  }

 private:
  static absl::string_view NameOf(const Profile& profile, const profile::Function& function) {
    const absl::string_view name = profile.str(function.name);
    return name.empty() ? kNoName : name;
  }

  std::unique_ptr<char[]> text_;
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
  index.Reserve(profile.nodes.size());
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
  for (const Line& line : lines) {
    constexpr size_t kCountBytes = 22;  // a blank, 20 digits, a newline
    const std::string& root = root_texts[line.root];
    size_t bytes = root.size() + kPieceBytes + kCountBytes;
    path.clear();
    for (uint32_t node = line.node; node != 0; node = profile.nodes[node].parent) {
      path.push_back(texts[profile.nodes[node].frame]);
      bytes += path.back().size();
    }
    char* to = std::copy(root.begin(), root.end(), out.Room(bytes));
    for (size_t i = path.size(); i-- > 0;) to = PutText(path[i], to);
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
