// A profile's surroundings in sentences: where, when, what the samples can show, and what is missing. Every
// format carries them.
#ifndef XENPROF_EXPORT_SUMMARY_H_
#define XENPROF_EXPORT_SUMMARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "xenprof/profile/profile.h"

namespace xenprof::exporter {

// "1,234,567".
std::string WithCommas(uint64_t number);
// "1.25 s", "12 ms", "3 min 20 s".
std::string DurationText(uint64_t nanoseconds);
// `part` of `whole` as "12.34 %"; "-" of nothing.
std::string ShareText(uint64_t part, uint64_t whole);
// "2026-11-30 23:59:01.250 UTC".
std::string TimeText(int64_t realtime_ns);
// Lower-case hex.
std::string HexText(absl::string_view bytes);
// Bytes that would steer a terminal or break a line become '?'.
std::string Printable(absl::string_view text);

// "dom0-lab: Linux 6.12.117, Xen 4.17.5, 2 CPUs (model)".
std::string HostText(const profile::Host& host);
// "cycles at 97 Hz".
std::string EventText(const profile::Host& host);
// "2026-11-30 23:59:01.250 UTC to 2026-11-30 23:59:31.250 UTC (30.00 s)".
std::string WindowText(const profile::Profile& profile);
// "xen stacks (vPMU mode all): REASON", the host's name in front when there are several.
std::string ModeText(const profile::Profile& profile, const profile::ModeUse& use);
// What the modes in force cannot see; each sentence once.
std::vector<std::string> BlindSpots(const profile::Profile& profile);

// What the collectors warned of, in their words.
std::vector<std::string> Warnings(const profile::Profile& profile);

struct CoverageText {
  bool complete = false;             // nothing is known to be missing
  std::string verdict;               // one line
  std::vector<std::string> details;  // what is missing, CPU by CPU where that is known
};
CoverageText DescribeCoverage(const profile::Profile& profile);

// Name of a happening's kind: "gap", "silent CPU".
absl::string_view HappeningName(int kind);

// "guest1 (domain 1)".
std::string DomainText(const profile::Profile& profile, const profile::Domain& domain);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_SUMMARY_H_
