// One self-contained page with a flame graph: no network, no other file.
#ifndef XENPROF_EXPORT_HTML_H_
#define XENPROF_EXPORT_HTML_H_

#include "xenprof/export/output.h"
#include "xenprof/profile/profile.h"

namespace xenprof::exporter {

struct HtmlOptions {
  int compression_level = 1;  // zlib, 1 to 9
};

// `profile` is by function. The page's data is base64 of a zlib stream of these bytes, numbers as protobuf's
// varints, text as its length in bytes and UTF-8:
//
//   1 (version), text: JSON of header and coverage
//   number of strings, the strings
//   number of labels; of each: type (FlameLabel::Type), kind (FrameKind), name and module (strings), upper
//   and lower
//     32 bits of the address
//   number of nodes, in preorder; of each: levels to go up from the node before (0: it is that one's child),
//   label, number
//     of entries; of each entry: origin, samples
absl::Status ExportHtml(const profile::Profile& profile, const HtmlOptions& options, Output* output);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_HTML_H_
