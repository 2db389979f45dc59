#include "client/import.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/import_pipeline.h"
#include "client/print.h"
#include "xenprof/base/json.h"
#include "xenprof/export/summary.h"

namespace xenprof::client {
namespace {

struct ImportCommandOptions {
  ImportOptions import;
  bool json = false;
};

std::string TextOf(const ImportOptions& options, const ImportResult& result) {
  std::string text = absl::StrFormat("%s: %s samples of %s from %s, %.1f s, %d CPUs\n", options.output,
                                     exporter::WithCommas(result.samples), result.event,
                                     options.input == "-" ? "standard input" : options.input,
                                     static_cast<double>(result.duration_ns) / 1e9, result.cpus);
  absl::StrAppend(&text, "mode: ", ModeName(result.mode), ": ", result.mode_reason, "\n");
  for (int i = 0; i < kOriginCount; ++i) {
    if (result.samples_by_origin[i] == 0) continue;
    absl::StrAppendFormat(&text, "%12s  %s\n", exporter::WithCommas(result.samples_by_origin[i]),
                          OriginName(static_cast<Origin>(i)));
  }
  if (result.lost_records > 0) {
    absl::StrAppend(&text, "lost by the kernel while recording: ", exporter::WithCommas(result.lost_records),
                    "\n");
  }
  return text;
}

std::string JsonOf(const ImportOptions& options, const ImportResult& result) {
  JsonWriter json;
  json.BeginObject();
  json.Key("file").String(options.output);
  json.Key("event").String(result.event);
  json.Key("samples").Unsigned(result.samples);
  json.Key("samples_by_origin").BeginObject();
  for (int i = 0; i < kOriginCount; ++i) {
    json.Key(OriginName(static_cast<Origin>(i))).Unsigned(result.samples_by_origin[i]);
  }
  json.EndObject();
  json.Key("left_out").BeginArray();
  for (const ImportResult::LeftOut& left_out : result.left_out) {
    json.BeginObject();
    json.Key("event").String(left_out.event);
    json.Key("samples").Unsigned(left_out.samples);
    json.EndObject();
  }
  json.EndArray();
  json.Key("bad_records").Unsigned(result.bad_records);
  json.Key("orphan_samples").Unsigned(result.orphan_samples);
  json.Key("lost_records").Unsigned(result.lost_records);
  json.Key("cpus").Unsigned(result.cpus);
  json.Key("duration_ns").Unsigned(result.duration_ns);
  json.Key("mode").String(ModeName(result.mode));
  json.Key("mode_reason").String(result.mode_reason);
  for (const auto& [name, texts] :
       {std::pair("warnings", &result.warnings), std::pair("remarks", &result.remarks)}) {
    json.Key(name).BeginArray();
    for (const std::string& text : *texts) json.String(text);
    json.EndArray();
  }
  json.EndObject();
  return json.Take();
}

int Run(const ImportCommandOptions& options) {
  if (options.import.output == "-" || options.import.output.empty()) {
    return ReportError(absl::InvalidArgumentError("import writes a chunk to a file: -o FILE"));
  }
  const absl::StatusOr<ImportResult> result = ImportPerfData(options.import);
  if (!result.ok()) return ReportError(result.status());
  for (const std::string& text : result->warnings)
    std::fprintf(stderr, "xenprofctl: warning: %s\n", text.c_str());
  if (options.json) return Print(JsonOf(options.import, *result));
  for (const std::string& text : result->remarks) std::fprintf(stderr, "xenprofctl: %s\n", text.c_str());
  return Print(TextOf(options.import, *result));
}

}  // namespace

void AddImportCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ImportCommandOptions>();
  options->import.producer = "xenprofctl " XENPROF_VERSION;
  CLI::App* command =
      app.add_subcommand("import", "A recording of `perf record` or `perf kvm record` as a chunk");
  command
      ->add_option(
          "PERF_DATA", options->import.input,
          "perf.data, plain or as .xz, .gz, .zst; a folder of --kcore or --threads; - is standard input")
      ->required();
  command->add_option("-o,--output", options->import.output, "Chunk to write; an older one is replaced")
      ->required();
  command->add_option(
      "--event", options->import.event,
      "The event to import, where several were recorded; by default the first that has samples");
  command->add_option("--kallsyms", options->import.kallsyms,
                      "Saved /proc/kallsyms of the host and boot recorded");
  command
      ->add_option("--xen-symbols", options->import.xen_symbols,
                   "Saved /proc/xen/xensyms of that host, or its xen-syms")
      ->take_all();
  command
      ->add_option("--symbol-root", options->import.symbol_roots,
                   "Folder with copies of that host's files below their paths there")
      ->take_all();
  command->add_flag(
      "--keep-unmapped", options->import.keep_unmapped_callers,
      "Keep callers at addresses where the program has nothing executable mapped: garbage of broken frame "
      "pointer chains, shown as one [unknown] otherwise");
  command->add_flag("--json", options->json, "Tell what was imported as JSON");
  command->callback([options, &context] { context.exit_status = Run(*options); });
}

}  // namespace xenprof::client
