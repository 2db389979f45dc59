// xenprofctl list: what chunks there are.
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/command.h"
#include "client/inputs.h"
#include "client/json.h"
#include "client/print.h"
#include "xenprof/base/types.h"
#include "xenprof/chunk/reader.h"
#include "xenprof/export/summary.h"

namespace xenprof::client {
namespace {

struct ListOptions {
  std::vector<std::string> paths;
  bool json = false;
};

struct Row {
  std::string path, problem;  // a problem: nothing but the path is known
  std::string hostname, mode;
  uint64_t bytes = 0, samples = 0, lost = 0, shed = 0;
  int64_t start_ns = 0, end_ns = 0;  // CLOCK_REALTIME
  bool sealed = false;
};

absl::string_view ModeText(const proto::Mode& mode) {
  return ModeName(proto::Mode::Kind_IsValid(mode.kind()) ? static_cast<ModeKind>(mode.kind())
                                                         : ModeKind::kUnspecified);
}

Row Inspect(const std::string& path) {
  Row row;
  row.path = path;
  const absl::StatusOr<std::unique_ptr<chunk::ChunkReader>> opened = chunk::ChunkReader::Open(path);
  if (!opened.ok()) {
    row.problem = std::string(opened.status().message());
    return row;
  }
  chunk::ChunkReader& reader = **opened;
  const proto::Header& header = reader.header();
  row.bytes = reader.file_bytes();
  row.hostname = header.host().hostname();
  row.mode = std::string(ModeText(header.mode()));
  row.start_ns = row.end_ns = static_cast<int64_t>(header.start_ns()) + header.realtime_offset_ns();
  const absl::StatusOr<proto::Trailer> trailer = reader.ReadTrailer();
  if (trailer.ok()) {
    row.sealed = true;
    row.mode = std::string(ModeText(trailer->mode()));
    row.samples = trailer->samples();
    row.lost = trailer->lost();
    row.shed = trailer->shed();
    row.start_ns = static_cast<int64_t>(trailer->start_ns()) + trailer->realtime_offset_ns();
    row.end_ns = static_cast<int64_t>(trailer->end_ns()) + trailer->realtime_offset_ns();
  } else if (!absl::IsNotFound(trailer.status())) {
    row.problem = std::string(trailer.status().message());
  }
  return row;
}

std::string ListText(const std::vector<Row>& rows) {
  std::string out = absl::StrFormat("%-23s  %12s %12s %8s %8s %11s  %-14s %-16s  %s\n", "start (UTC)",
                                    "length", "samples", "lost", "shed", "bytes", "mode", "host", "file");
  for (const Row& row : rows) {
    if (!row.problem.empty()) {
      absl::StrAppend(&out, exporter::Printable(row.problem), "\n");
      continue;
    }
    const std::string start =
        absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixNanos(row.start_ns), absl::UTCTimeZone());
    absl::StrAppendFormat(&out, "%-23s  %12s %12s %8s %8s %11s  %-14s %-16s  %s\n", start,
                          row.sealed ? exporter::DurationText(row.end_ns - row.start_ns) : "not sealed",
                          exporter::WithCommas(row.samples), exporter::WithCommas(row.lost),
                          exporter::WithCommas(row.shed), exporter::WithCommas(row.bytes), row.mode,
                          exporter::Printable(row.hostname), exporter::Printable(row.path));
  }
  return out;
}

std::string ListJson(const std::vector<Row>& rows) {
  JsonWriter json;
  json.BeginObject();
  json.Key("chunks").BeginArray();
  for (const Row& row : rows) {
    json.BeginObject();
    json.Key("path").String(row.path);
    if (row.problem.empty()) {
      json.Key("hostname").String(row.hostname);
      json.Key("mode").String(row.mode);
      json.Key("sealed").Bool(row.sealed);
      json.Key("start_ns").Signed(row.start_ns);
      json.Key("end_ns").Signed(row.end_ns);
      json.Key("samples").Unsigned(row.samples);
      json.Key("lost").Unsigned(row.lost);
      json.Key("shed").Unsigned(row.shed);
      json.Key("bytes").Unsigned(row.bytes);
    } else {
      json.Key("problem").String(row.problem);
    }
    json.EndObject();
  }
  json.EndArray().EndObject();
  return json.Take();
}

int RunList(const ListOptions& options, const CommandContext& context) {
  const absl::StatusOr<std::vector<profile::Input>> inputs = ResolveInputs(options.paths, context);
  if (!inputs.ok()) return ReportError(inputs.status());
  std::vector<Row> rows;
  bool problems = false;
  for (const profile::Input& input : *inputs) {
    rows.push_back(Inspect(input.path));
    problems |= !rows.back().problem.empty();
  }
  const int printed = Print(options.json ? ListJson(rows) : ListText(rows));
  return printed == kExitOk && problems ? kExitFailed : printed;
}

}  // namespace

void AddListCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command = app.add_subcommand("list", "What chunks there are, by their headers and trailers");
  command->add_option("inputs", options->paths,
                      "Chunk files (*.xenprof) or folders; without any, what the running daemon keeps");
  command->add_flag("--json", options->json, "As JSON; times are nanoseconds since 1970");
  command->callback([options, &context] { context.exit_status = RunList(*options, context); });
}

}  // namespace xenprof::client
