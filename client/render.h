// From chunks to a file in one of the export formats.
#ifndef CLIENT_RENDER_H_
#define CLIENT_RENDER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xenprof/export/output.h"
#include "xenprof/profile/inputs.h"

namespace xenprof::client {

enum class Format {
  kChunk,  // a window cut out, as a chunk again
  kText,
  kFolded,
  kPprof,
  kHtml,
  kJson,  // the report for scripts
};

// "text", "folded", "pprof", "html". InvalidArgument lists them.
absl::StatusOr<Format> FormatByName(absl::string_view name);
// .xenprof, .txt, .folded, .pb.gz or .pprof, .html, .json. InvalidArgument lists them.
absl::StatusOr<Format> FormatByEnding(absl::string_view path);

struct RenderOptions {
  Format format = Format::kText;
  bool salvage = false;
  size_t functions = 40;  // rows of text and json; 0: all
  size_t lines = 0;       // rows of source lines in text and json
};
// Not for kChunk.
absl::Status Render(std::vector<profile::Input> inputs, const profile::TimeWindow& window,
                    const RenderOptions& options, exporter::Output* output);

}  // namespace xenprof::client

#endif  // CLIENT_RENDER_H_
