#include "xenprof/export/html.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "xenprof/base/json.h"
#include "xenprof/base/utf8.h"
#include "xenprof/export/deflate.h"
#include "xenprof/export/flame_tree.h"
#include "xenprof/export/html_page.h"
#include "xenprof/export/summary.h"

namespace xenprof::exporter {

using profile::Profile;

namespace {

constexpr size_t kMaxNumberBytes = 10;

char* PutNumber(uint64_t value, char* to) {
  for (; value >= 0x80; value >>= 7) *to++ = static_cast<char>(value | 0x80);
  *to++ = static_cast<char>(value);
  return to;
}

void AppendNumber(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

void AppendText(absl::string_view text, std::string* out) {
  AppendNumber(text.size(), out);
  out->append(text.data(), text.size());
}

std::string HostNames(const Profile& profile) {
  std::vector<std::string> names;
  for (const profile::Host& host : profile.hosts) {
    if (names.empty() || names.back() != host.hostname) names.push_back(host.hostname);
  }
  constexpr size_t kShown = 4;
  const size_t count = names.size();
  if (count > kShown) names.resize(kShown);
  std::string text = absl::StrJoin(names, ", ");
  if (count > kShown) absl::StrAppend(&text, " and ", count - kShown, " more");
  return text;
}

// [[name, text], ...]: the facts below the title.
void AddFacts(const Profile& profile, JsonWriter* json) {
  const auto fact = [&](absl::string_view name, absl::string_view text) {
    if (!text.empty()) json->BeginArray().String(name).String(text).EndArray();
  };
  json->Key("facts").BeginArray();
  fact("Window", WindowText(profile));
  fact("Samples", WithCommas(profile.totals.samples));
  if (profile.totals.time_ns > 0) fact("CPU time", DurationText(profile.totals.time_ns));
  if (profile.hosts.size() == 1) {
    const profile::Host& host = profile.hosts.front();
    fact("Event", EventText(host));
    fact("Xen", host.xen_version);
    fact("Linux", host.kernel_release);
    if (host.cpu_count > 0) {
      fact("CPUs", absl::StrCat(host.cpu_count, host.cpu_model.empty() ? "" : " \u00d7 ", host.cpu_model));
    }
  } else {
    for (const profile::Host& host : profile.hosts)
      fact("Host", absl::StrCat(HostText(host), ", ", EventText(host)));
  }
  json->EndArray();
}

std::string Metadata(const Profile& profile) {
  JsonWriter json;
  json.BeginObject();
  json.Key("host").String(HostNames(profile));
  AddFacts(profile, &json);
  json.Key("modes").BeginArray();
  for (const profile::ModeUse& use : profile.modes) json.String(ModeText(profile, use));
  json.EndArray();
  json.Key("unseen").BeginArray();
  for (const std::string& sentence : BlindSpots(profile)) json.String(sentence);
  json.EndArray();
  const CoverageText coverage = DescribeCoverage(profile);
  json.Key("complete").Bool(coverage.complete);
  json.Key("coverage").String(coverage.verdict);
  json.Key("details").BeginArray();
  for (const std::string& detail : coverage.details) json.String(detail);
  json.EndArray();
  json.Key("warnings").BeginArray();
  for (const std::string& warning : Warnings(profile)) json.String(warning);
  json.EndArray();
  json.Key("remarks").BeginArray();
  const profile::Totals& totals = profile.totals;
  if (totals.truncated > 0) {
    json.String(
        absl::StrCat(ShareText(totals.truncated, totals.samples),
                     " of the samples reached the kernel's limit of frames: their callers are missing."));
  }
  if (totals.no_user_callers > 0) {
    json.String(
        absl::StrCat(ShareText(totals.no_user_callers, totals.samples),
                     " of the samples were taken in user code of a PV dom0, which the kernel cannot walk: "
                     "they show the function alone."));
  }
  if (totals.guessed_origin > 0) {
    json.String(absl::StrCat("The origin of ", ShareText(totals.guessed_origin, totals.samples),
                             " of the samples is inferred."));
  }
  json.EndArray();
  json.Key("origins").BeginArray();
  for (int i = 0; i < kOriginCount; ++i) json.String(OriginName(static_cast<Origin>(i)));
  json.EndArray();
  json.EndObject();
  return json.Take();
}

// The tree's bytes; `written` becomes the samples in it.
std::string Encode(const Profile& profile, const FlameTree& tree, uint64_t* written) {
  std::string out;
  out.reserve(tree.size() * 8 + tree.labels.size() * 40);
  AppendNumber(1, &out);
  AppendText(Metadata(profile), &out);

  absl::flat_hash_map<absl::string_view, uint32_t> ids;
  std::deque<std::string> cleaned;  // a deque: the views stay good
  uint32_t string_count = 0;
  std::string strings, labels;
  absl::string_view last_module;
  uint32_t last_module_id = 0;
  const auto id_of = [&](absl::string_view text, bool own) {
    const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
    if (!ascii) text = cleaned.emplace_back(ToUtf8(text));
    if (!own || !ascii) {
      const auto [entry, is_new] = ids.try_emplace(text, string_count);
      if (!is_new) return entry->second;
    }
    AppendText(text, &strings);
    return string_count++;
  };
  for (const FlameLabel& label : tree.labels) {
    AppendNumber(static_cast<uint64_t>(label.type), &labels);
    AppendNumber(static_cast<uint64_t>(label.kind), &labels);
    AppendNumber(id_of(label.name, label.own_name), &labels);
    if (label.module.data() != last_module.data() || label.module.size() != last_module.size() ||
        label.module.empty()) {
      last_module = label.module;
      last_module_id = id_of(label.module, false);
    }
    AppendNumber(last_module_id, &labels);
    AppendNumber(label.address >> 32, &labels);
    AppendNumber(label.address & 0xffffffff, &labels);
  }
  AppendNumber(string_count, &out);
  out += strings;
  AppendNumber(tree.labels.size(), &out);
  out += labels;

  AppendNumber(tree.size(), &out);
  *written = 0;
  // Through a buffer on the stack: a string would check its capacity at each byte.
  char buffer[4096];
  char* to = buffer;
  const auto put = [&](uint64_t value) {
    if (to > buffer + sizeof(buffer) - kMaxNumberBytes) {
      out.append(buffer, static_cast<size_t>(to - buffer));
      to = buffer;
    }
    to = PutNumber(value, to);
  };
  for (size_t i = 0; i < tree.size(); ++i) {
    // The reader's path holds the node before, at its depth, as last entry.
    const uint32_t path_length = i == 0 ? 0 : tree.depth[i - 1] + 1;
    put(path_length - tree.depth[i]);
    put(tree.label[i]);
    put(tree.first_self[i + 1] - tree.first_self[i]);
    for (uint32_t s = tree.first_self[i]; s < tree.first_self[i + 1]; ++s) {
      put(static_cast<uint64_t>(tree.selfs[s].origin));
      put(tree.selfs[s].count);
      *written += tree.selfs[s].count;
    }
  }
  out.append(buffer, static_cast<size_t>(to - buffer));
  return out;
}

std::string EscapeHtml(absl::string_view text) {
  std::string out;
  for (const char c : ToUtf8(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace

absl::Status ExportHtml(const Profile& profile, const HtmlOptions& options, Output* output) {
  if (profile.granularity != profile::Granularity::kFunction) {
    return absl::InvalidArgumentError("the html page is made of a profile by function");
  }
  const FlameTree tree = BuildFlameTree(profile);
  uint64_t written = 0;
  const std::string bytes = Encode(profile, tree, &written);
  absl::Status total = CheckTotal("html", written, profile.totals.samples);
  if (!total.ok()) return total;
  absl::StatusOr<std::string> packed = Deflate(bytes, DeflateFormat::kZlib, options.compression_level);
  if (!packed.ok()) return packed.status();

  absl::string_view page(kPageHtml, kPageHtmlSize);
  // Base64 cannot end the script element it stands in, whatever the names in the profile are.
  const std::pair<absl::string_view, std::string> parts[] = {
      {"{{title}}", EscapeHtml(absl::StrCat(HostNames(profile), " - xenprof"))},
      {"{{css}}", std::string(kPageCss, kPageCssSize)},
      {"{{data}}", absl::Base64Escape(*packed)},
      {"{{js}}", std::string(kPageJs, kPageJsSize)},
  };
  for (const auto& [mark, text] : parts) {
    const size_t at = page.find(mark);
    if (at == absl::string_view::npos)
      return absl::InternalError(absl::StrCat("the embedded page lacks ", mark));
    absl::Status status = output->Write(page.substr(0, at));
    if (status.ok()) status = output->Write(text);
    if (!status.ok()) return status;
    page.remove_prefix(at + mark.size());
  }
  return output->Write(page);
}

}  // namespace xenprof::exporter
