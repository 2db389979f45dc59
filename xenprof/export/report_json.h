// The report for scripts.
#ifndef XENPROF_EXPORT_REPORT_JSON_H_
#define XENPROF_EXPORT_REPORT_JSON_H_

#include <cstddef>

#include "xenprof/export/output.h"
#include "xenprof/profile/profile.h"

namespace xenprof::exporter {

// One JSON object: samples, window (nanoseconds since 1970), hosts, modes, blind_spots, coverage, origins,
// domains, functions (by descending self, at most `max_functions`, 0: all), and lines where the profile is by
// address. Shares are left to the reader: counts and totals are there.
absl::Status ExportReportJson(const profile::Profile& profile, size_t max_functions, Output* output);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_REPORT_JSON_H_
