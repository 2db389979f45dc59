// A report for people, as plain text.
#ifndef XENPROF_EXPORT_TEXT_H_
#define XENPROF_EXPORT_TEXT_H_

#include <cstddef>

#include "xenprof/export/output.h"
#include "xenprof/profile/profile.h"

namespace xenprof::exporter {

struct TextOptions {
  size_t functions = 40;  // rows of the table of functions; 0: all
  size_t lines = 0;       // rows of the table of source lines; needs a profile by address
};

// Host, window, mode and what it cannot see, coverage, origins, guests, and the hottest functions with self
// and total.
absl::Status ExportText(const profile::Profile& profile, const TextOptions& options, Output* output);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_TEXT_H_
