// Folded stacks: one line a stack, "root;outermost;..;innermost COUNT", as flame graph tools take them.
#ifndef XENPROF_EXPORT_FOLDED_H_
#define XENPROF_EXPORT_FOLDED_H_

#include "xenprof/export/output.h"
#include "xenprof/profile/profile.h"

namespace xenprof::exporter {

// The root is the task's name, or the guest's; below it the host's when there are several. Frames that are no
// dom0 program's end in "_[x]" (hypervisor), "_[k]" (dom0 kernel), "_[g]" (guest). A ';' in a name becomes
// ':', a control character '?'. Needs a profile by function. Equal profiles give equal bytes.
absl::Status ExportFolded(const profile::Profile& profile, Output* output);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_FOLDED_H_
