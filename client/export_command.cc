// xenprofctl export: chunks in another format.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>

#include "client/command.h"
#include "client/cut_chunk.h"
#include "client/inputs.h"
#include "client/output_file.h"
#include "client/render.h"

namespace xenprof::client {
namespace {

struct ExportOptions {
  InputArguments inputs;
  std::string format;
  std::string output = "-";
};

absl::Status RunExport(const ExportOptions& options, const CommandContext& context) {
  const absl::StatusOr<Format> format =
      options.format.empty() ? FormatByEnding(options.output) : FormatByName(options.format);
  if (!format.ok()) return format.status();
  const absl::StatusOr<profile::TimeWindow> window = ParseWindow(options.inputs.window);
  if (!window.ok()) return window.status();
  absl::StatusOr<std::vector<profile::Input>> inputs = ResolveInputs(options.inputs.paths, context);
  if (!inputs.ok()) return inputs.status();
  if (*format == Format::kChunk) {
    return CutChunk(*std::move(inputs), *window, options.inputs.salvage, options.output);
  }
  absl::StatusOr<std::unique_ptr<OutputFile>> output = OutputFile::Create(options.output);
  if (!output.ok()) return output.status();
  RenderOptions render;
  render.format = *format;
  render.salvage = options.inputs.salvage;
  absl::Status status = Render(*std::move(inputs), *window, render, output->get());
  return status.ok() ? (*output)->Commit() : status;
}

}  // namespace

void AddExportCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "Writes a window of chunks in another format");
  command->add_option("--format", options->format,
                      "text, folded, pprof or html; without it, by the ending of -o (.xenprof cuts a chunk)");
  command->add_option("-o,--output", options->output, "File to write, - for standard output (the default)");
  AddInputOptions(command, &options->inputs);
  command->callback([options, &context] { context.exit_status = ReportError(RunExport(*options, context)); });
}

}  // namespace xenprof::client
