// xenprofctl snapshot: a window from the running daemon.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/command.h"
#include "client/control_client.h"
#include "client/cut_chunk.h"
#include "client/output_file.h"
#include "client/render.h"
#include "client/time_arguments.h"
#include "xenprof/export/summary.h"

namespace xenprof::client {
namespace {

struct SnapshotOptions {
  std::string seconds, last, output = "-", format;
  bool progress = false;
};

// One line that is rewritten, on a terminal; one line each time otherwise.
class Progress {
 public:
  explicit Progress(bool asked) : terminal_(isatty(STDERR_FILENO) == 1), shown_(asked || terminal_) {}
  ~Progress() { End(); }
  bool shown() const { return shown_; }

  void Show(const proto::SnapshotProgress& progress) {
    const double elapsed_s = static_cast<double>(progress.elapsed_ns()) / 1e9;
    const double total_s = static_cast<double>(progress.total_ns()) / 1e9;
    const std::string text = absl::StrFormat("collecting: %.1f of %.1f s, %s samples", elapsed_s, total_s,
                                             exporter::WithCommas(progress.samples()));
    std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", text.c_str());
    std::fflush(stderr);
    open_ = terminal_;
  }
  void End() {
    if (open_) std::fputs("\r\033[K", stderr);
    open_ = false;
  }

 private:
  const bool terminal_, shown_;
  bool open_ = false;
};

absl::Status RunSnapshot(const SnapshotOptions& options, const CommandContext& context) {
  absl::StatusOr<Format> format = Format::kText;
  if (!options.format.empty()) {
    format = FormatByName(options.format);
  } else if (options.output != "-") {
    format = FormatByEnding(options.output);
  }
  if (!format.ok()) return format.status();
  absl::Duration future, past;
  if (options.seconds.empty() && options.last.empty()) {
    return absl::InvalidArgumentError("snapshot needs --seconds N, --last N, or both");
  }
  if (!options.seconds.empty()) {
    const absl::StatusOr<absl::Duration> parsed = ParseDuration(options.seconds);
    if (!parsed.ok())
      return absl::InvalidArgumentError(absl::StrCat("--seconds: ", parsed.status().message()));
    future = *parsed;
  }
  if (!options.last.empty()) {
    const absl::StatusOr<absl::Duration> parsed = ParseDuration(options.last);
    if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat("--last: ", parsed.status().message()));
    past = *parsed;
  }
  // Before the wait: a file that cannot be written is not found out after it.
  std::unique_ptr<OutputFile> output;
  if (*format != Format::kChunk) {
    absl::StatusOr<std::unique_ptr<OutputFile>> created = OutputFile::Create(options.output);
    if (!created.ok()) return created.status();
    output = *std::move(created);
  }

  absl::StatusOr<ControlClient> client = ControlClient::Connect(context.socket_path);
  if (!client.ok()) return client.status();
  Progress progress(options.progress);
  ControlClient::OnProgress show;
  if (progress.shown()) show = [&](const proto::SnapshotProgress& message) { progress.Show(message); };
  absl::StatusOr<ControlClient::Snapshot> snapshot = client->TakeSnapshot(future, past, show);
  progress.End();
  if (!snapshot.ok()) return snapshot.status();
  if (snapshot->chunks.empty()) return absl::NotFoundError("xenprofd has no chunk that covers the window");

  profile::TimeWindow window;
  window.clock = profile::TimeWindow::Clock::kMonotonic;
  window.start_ns = static_cast<int64_t>(snapshot->start_ns);
  window.end_ns = static_cast<int64_t>(snapshot->end_ns);
  if (*format == Format::kChunk) return CutChunk(std::move(snapshot->chunks), window, false, options.output);
  RenderOptions render;
  render.format = *format;
  absl::Status status = Render(std::move(snapshot->chunks), window, render, output.get());
  return status.ok() ? output->Commit() : status;
}

}  // namespace

void AddSnapshotCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<SnapshotOptions>();
  CLI::App* command = app.add_subcommand("snapshot", "A window from the running daemon, cut exactly");
  command->add_option("--seconds", options->seconds, "Collect this long from now on: 30, 500ms, 5min");
  command->add_option("--last", options->last, "And this much of the past");
  command->add_option(
      "-o,--output", options->output,
      "File to write, its ending tells the format: .xenprof .html .txt .json .folded .pb.gz .pprof; "
      "without it a report goes to standard output");
  command->add_option("--format", options->format, "text, folded, pprof or html, whatever the ending");
  command->add_flag("--progress", options->progress, "Tell progress on standard error, a terminal or not");
  command->callback(
      [options, &context] { context.exit_status = ReportError(RunSnapshot(*options, context)); });
}

}  // namespace xenprof::client
