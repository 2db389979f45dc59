#include "client/render.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/large_heap.h"
#include "xenprof/export/folded.h"
#include "xenprof/export/html.h"
#include "xenprof/export/pprof.h"
#include "xenprof/export/report_json.h"
#include "xenprof/export/text.h"
#include "xenprof/profile/build.h"

namespace xenprof::client {

absl::StatusOr<Format> FormatByName(absl::string_view name) {
  if (name == "text") return Format::kText;
  if (name == "folded") return Format::kFolded;
  if (name == "pprof") return Format::kPprof;
  if (name == "html") return Format::kHtml;
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is no format; there are text, folded, pprof and html"));
}

absl::StatusOr<Format> FormatByEnding(absl::string_view path) {
  if (absl::EndsWith(path, ".xenprof")) return Format::kChunk;
  if (absl::EndsWith(path, ".txt")) return Format::kText;
  if (absl::EndsWith(path, ".folded")) return Format::kFolded;
  if (absl::EndsWith(path, ".pb.gz") || absl::EndsWith(path, ".pprof")) return Format::kPprof;
  if (absl::EndsWith(path, ".html")) return Format::kHtml;
  if (absl::EndsWith(path, ".json")) return Format::kJson;
  return absl::InvalidArgumentError(
      absl::StrCat("'", path,
                   "' does not end in .xenprof, .html, .txt, .json, .folded, .pb.gz or .pprof, "
                   "which would tell the format; --format can"));
}

absl::Status Render(std::vector<profile::Input> inputs, const profile::TimeWindow& window,
                    const RenderOptions& options, exporter::Output* output) {
  UseLargeHeap();
  profile::BuildOptions build;
  build.salvage = options.salvage;
  const bool pprof = options.format == Format::kPprof;
  const bool report = options.format == Format::kText || options.format == Format::kJson;
  if (pprof || (report && options.lines > 0)) build.granularity = profile::Granularity::kAddress;
  build.by_task = !report;
  build.tasks_by_name = options.format == Format::kFolded || options.format == Format::kHtml;
  build.by_cpu = pprof;
  const absl::StatusOr<profile::Profile> profile = profile::BuildProfile(std::move(inputs), window, build);
  if (!profile.ok()) return profile.status();
  switch (options.format) {
    case Format::kText:
      return exporter::ExportText(*profile, {.functions = options.functions, .lines = options.lines}, output);
    case Format::kFolded:
      return exporter::ExportFolded(*profile, output);
    case Format::kPprof:
      return exporter::ExportPprof(*profile, {}, output);
    case Format::kHtml:
      return exporter::ExportHtml(*profile, {}, output);
    case Format::kJson:
      return exporter::ExportReportJson(*profile, options.functions, output);
    case Format::kChunk:
      break;
  }
  return absl::InternalError("a chunk is not rendered");
}

}  // namespace xenprof::client
