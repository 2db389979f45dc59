// The pprof format (perftools.profiles.Profile, gzip): what go tool pprof, Pyroscope, Parca and others read.
#ifndef XENPROF_EXPORT_PPROF_H_
#define XENPROF_EXPORT_PPROF_H_

#include "xenprof/export/output.h"
#include "xenprof/profile/profile.h"

namespace xenprof::exporter {

struct PprofOptions {
  int gzip_level = 1;  // 1 (fast) to 9
};

// Values of each sample: samples/count and, where the event counts time, cpu/nanoseconds. Labels: `origin`
// and `domain` are strings, `pid`, `tid` and `cpu` numbers, `host` a string when there are several; pid and
// tid only where the task says whose time it was. Every frame has a function, so that no viewer drops one. An
// address is an offset in its file, or the virtual address where there is no file, and return addresses are
// already less 1. Comments carry host, window, mode with its blind spot, and coverage. Needs a profile by
// address. Equal profiles give equal bytes.
absl::Status ExportPprof(const profile::Profile& profile, const PprofOptions& options, Output* output);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_PPROF_H_
