// The doctor's findings as text for people and as JSON for programs.
#ifndef CLIENT_DOCTOR_RENDER_H_
#define CLIENT_DOCTOR_RENDER_H_

#include <string>
#include <vector>

#include "xenprof/xen/doctor.h"

namespace xenprof::client {

// One paragraph a finding: severity, title, what was found; for those that are not fine also why it matters
// and the commands that mend it. Findings that are fine or were skipped have one line. A count of faults ends
// it. Lines are folded at `columns`, commands never.
std::string RenderDoctorText(const std::vector<xen::Finding>& findings, size_t columns = 100);

// {"version": 1, "worst": "warning", "findings": [{"id", "severity", "title", "found", "why", "advice",
// "commands": []}]}
std::string RenderDoctorJson(const std::vector<xen::Finding>& findings);

}  // namespace xenprof::client

#endif  // CLIENT_DOCTOR_RENDER_H_
