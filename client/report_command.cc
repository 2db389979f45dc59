// xenprofctl report: the hottest functions, origins and coverage.
#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "client/command.h"
#include "client/inputs.h"
#include "client/output_file.h"
#include "client/render.h"

namespace xenprof::client {
namespace {

struct ReportOptions {
  InputArguments inputs;
  bool lines = false, json = false;
  size_t top = 40;
};

absl::Status RunReport(const ReportOptions& options, const CommandContext& context) {
  const absl::StatusOr<profile::TimeWindow> window = ParseWindow(options.inputs.window);
  if (!window.ok()) return window.status();
  absl::StatusOr<std::vector<profile::Input>> inputs = ResolveInputs(options.inputs.paths, context);
  if (!inputs.ok()) return inputs.status();
  absl::StatusOr<std::unique_ptr<OutputFile>> output = OutputFile::Create("-");
  if (!output.ok()) return output.status();
  RenderOptions render;
  render.format = options.json ? Format::kJson : Format::kText;
  render.salvage = options.inputs.salvage;
  render.functions = options.top;
  render.lines = options.lines ? options.top : 0;
  return Render(*std::move(inputs), *window, render, output->get());
}

}  // namespace

void AddReportCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command =
      app.add_subcommand("report", "The hottest functions, whose time it was, and what was not seen");
  command->add_flag("--lines", options->lines,
                    "Source lines and inlined functions too, where the chunks carry them");
  command->add_option("--top", options->top, "Rows of the tables")->check(CLI::Range(1, 1'000'000));
  command->add_flag("--json", options->json, "As JSON");
  AddInputOptions(command, &options->inputs);
  command->callback([options, &context] { context.exit_status = ReportError(RunReport(*options, context)); });
}

}  // namespace xenprof::client
