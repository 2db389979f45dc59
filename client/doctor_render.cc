#include "client/doctor_render.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "xenprof/base/json.h"

namespace xenprof::client {
namespace {

using xen::Finding;
using xen::Severity;

// Appends `text` folded at `columns`, further lines indented by `indent`; the first line starts at column
// `at`.
void AppendFolded(std::string* out, absl::string_view text, size_t at, size_t indent, size_t columns) {
  bool first = true;
  for (absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \n\t"), absl::SkipEmpty())) {
    if (!first && at + 1 + word.size() > columns) {
      absl::StrAppend(out, "\n", std::string(indent, ' '));
      at = indent;
      first = true;
    }
    if (!first) {
      out->push_back(' ');
      ++at;
    }
    // What Xen or a file gave must not reach the terminal as control characters.
    for (char c : word) out->push_back(absl::ascii_iscntrl(static_cast<unsigned char>(c)) ? '?' : c);
    at += word.size();
    first = false;
  }
  out->push_back('\n');
}

void AppendLabelled(std::string* out, absl::string_view label, absl::string_view text, size_t columns) {
  if (text.empty()) return;
  constexpr size_t kIndent = 12;
  std::string head = absl::StrCat("    ", label);
  head.resize(std::max(head.size() + 1, kIndent), ' ');
  absl::StrAppend(out, head);
  AppendFolded(out, text, head.size(), kIndent, columns);
}

// "1 error, 2 warnings", or that there is no fault.
std::string Summary(const std::vector<Finding>& findings) {
  size_t errors = 0, warnings = 0;
  for (const Finding& finding : findings) {
    if (finding.severity == Severity::kError) ++errors;
    if (finding.severity == Severity::kWarning) ++warnings;
  }
  if (errors + warnings == 0) return "No fault found.\n";
  std::string text;
  if (errors > 0) text = absl::StrCat(errors, errors == 1 ? " error" : " errors");
  if (warnings > 0) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", warnings, warnings == 1 ? " warning" : " warnings");
  }
  if (errors + warnings > 1) absl::StrAppend(&text, "; mend the first one first, others may follow from it");
  return absl::StrCat(text, ".\n");
}

}  // namespace

std::string RenderDoctorText(const std::vector<Finding>& findings, size_t columns) {
  std::string out;
  for (const Finding& finding : findings) {
    const std::string head =
        absl::StrCat(absl::AsciiStrToUpper(xen::SeverityName(finding.severity)), "  ", finding.title, ": ");
    absl::StrAppend(&out, head);
    AppendFolded(&out, finding.found, head.size(), 4, columns);
    if (finding.severity <= Severity::kOk) continue;
    AppendLabelled(&out, "why:", finding.why, columns);
    AppendLabelled(&out, finding.commands.empty() ? "fix:" : "note:", finding.advice, columns);
    const char* label = "fix:";
    for (const std::string& command : finding.commands) {
      absl::StrAppend(&out, "    ", label, "    ", command, "\n");
      label = "    ";
    }
  }
  absl::StrAppend(&out, Summary(findings));
  return out;
}

std::string RenderDoctorJson(const std::vector<Finding>& findings) {
  JsonWriter json;
  json.BeginObject();
  json.Key("version").Unsigned(1);
  json.Key("worst").String(xen::SeverityName(xen::WorstSeverity(findings)));
  json.Key("findings").BeginArray();
  for (const Finding& finding : findings) {
    json.BeginObject();
    json.Key("id").String(finding.id);
    json.Key("severity").String(xen::SeverityName(finding.severity));
    json.Key("title").String(finding.title);
    json.Key("found").String(finding.found);
    json.Key("why").String(finding.why);
    json.Key("advice").String(finding.advice);
    json.Key("commands").BeginArray();
    for (const std::string& command : finding.commands) json.String(command);
    json.EndArray();
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return json.Take();
}

}  // namespace xenprof::client
