// xenprofctl verify: every checksum, id and total of chunk files.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/command.h"
#include "client/inputs.h"
#include "client/json.h"
#include "client/print.h"
#include "xenprof/chunk/reader.h"
#include "xenprof/export/summary.h"

namespace xenprof::client {
namespace {

using exporter::Printable;
using exporter::WithCommas;

struct VerifyOptions {
  std::vector<std::string> paths;
  bool json = false;
};

struct Verdict {
  std::string path;
  chunk::VerifyReport report;
  std::vector<std::string> problems;  // with file and offset; empty: content
};

Verdict VerifyFile(const std::string& path) {
  Verdict verdict;
  verdict.path = path;
  absl::StatusOr<chunk::VerifyReport> report = chunk::Verify(path);
  if (!report.ok()) {
    verdict.problems.emplace_back(report.status().message());
    return verdict;
  }
  verdict.report = *std::move(report);
  for (const chunk::Damage& damage : verdict.report.problems) {
    verdict.problems.push_back(
        absl::StrCat(path, ": offset ", damage.offset, ": ", damage.reason,
                     damage.bytes > 0 ? absl::StrCat(" (", damage.bytes, " bytes)") : ""));
  }
  if (!verdict.report.sealed && verdict.problems.empty()) {
    verdict.problems.push_back(
        absl::StrCat(path, ": not sealed: it ends without a trailer, cut off or still written"));
  }
  return verdict;
}

std::string VerdictText(const Verdict& verdict) {
  if (!verdict.problems.empty()) {
    std::string out;
    for (const std::string& problem : verdict.problems) absl::StrAppend(&out, Printable(problem), "\n");
    return out;
  }
  const chunk::VerifyReport& report = verdict.report;
  return absl::StrCat(Printable(verdict.path), ": good: ", WithCommas(report.blocks), " blocks, ",
                      WithCommas(report.samples), " samples, ", WithCommas(report.lost), " lost, ",
                      WithCommas(report.shed), " shed, names for ",
                      exporter::ShareText(report.named_frames, report.frames), " of ",
                      WithCommas(report.frames), " frames\n");
}

std::string VerdictsJson(const std::vector<Verdict>& verdicts) {
  JsonWriter json;
  json.BeginObject();
  json.Key("files").BeginArray();
  for (const Verdict& verdict : verdicts) {
    const chunk::VerifyReport& report = verdict.report;
    json.BeginObject();
    json.Key("path").String(verdict.path);
    json.Key("good").Bool(verdict.problems.empty());
    json.Key("sealed").Bool(report.sealed);
    json.Key("blocks").Unsigned(report.blocks);
    json.Key("samples").Unsigned(report.samples);
    json.Key("lost").Unsigned(report.lost);
    json.Key("shed").Unsigned(report.shed);
    json.Key("frames").Unsigned(report.frames);
    json.Key("named_frames").Unsigned(report.named_frames);
    json.Key("problems").BeginArray();
    for (const std::string& problem : verdict.problems) json.String(problem);
    json.EndArray().EndObject();
  }
  json.EndArray().EndObject();
  return json.Take();
}

int RunVerify(const VerifyOptions& options, const CommandContext& context) {
  const absl::StatusOr<std::vector<profile::Input>> inputs = ResolveInputs(options.paths, context);
  if (!inputs.ok()) return ReportError(inputs.status());
  std::vector<Verdict> verdicts;
  bool content = true;
  int printed = kExitOk;
  for (const profile::Input& input : *inputs) {
    verdicts.push_back(VerifyFile(input.path));
    content &= verdicts.back().problems.empty();
    // A large folder takes a while: what is known is shown.
    if (!options.json && (printed = Print(VerdictText(verdicts.back()))) != kExitOk) return printed;
  }
  if (options.json) printed = Print(VerdictsJson(verdicts));
  return printed == kExitOk && !content ? kExitFailed : printed;
}

}  // namespace

void AddVerifyCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand(
      "verify", "Checks every checksum, id and total; exit status 1 when something is wrong");
  command->add_option("files", options->paths,
                      "Chunk files (*.xenprof) or folders; without any, what the running daemon keeps");
  command->add_flag("--json", options->json, "As JSON");
  command->callback([options, &context] { context.exit_status = RunVerify(*options, context); });
}

}  // namespace xenprof::client
