#include "xenprof/export/summary.h"

#include <algorithm>
#include <cinttypes>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "chunk.pb.h"

namespace xenprof::exporter {

using profile::Profile;

std::string WithCommas(uint64_t number) {
  const std::string digits = absl::StrCat(number);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out.push_back(',');
    out.push_back(digits[i]);
  }
  return out;
}

std::string DurationText(uint64_t nanoseconds) {
  const double seconds = static_cast<double>(nanoseconds) / 1e9;
  if (nanoseconds < 1'000'000) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (nanoseconds < 1'000'000'000) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 120) return absl::StrFormat("%.2f s", seconds);
  const auto whole = static_cast<uint64_t>(seconds);
  if (whole < 7200) return absl::StrFormat("%d min %d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %d min", whole / 3600, whole % 3600 / 60);
}

std::string ShareText(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  return absl::StrFormat("%.2f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string TimeText(int64_t realtime_ns) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%E3S UTC", absl::FromUnixNanos(realtime_ns), absl::UTCTimeZone());
}

std::string HexText(absl::string_view bytes) { return absl::BytesToHexString(bytes); }

std::string Printable(absl::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out;
}

std::string HostText(const profile::Host& host) {
  std::string text = host.hostname.empty() ? "unknown host" : Printable(host.hostname);
  std::vector<std::string> facts;
  if (!host.kernel_release.empty()) facts.push_back(absl::StrCat("Linux ", Printable(host.kernel_release)));
  if (!host.xen_version.empty()) facts.push_back(absl::StrCat("Xen ", Printable(host.xen_version)));
  if (host.cpu_count > 0)
    facts.push_back(absl::StrCat(host.cpu_count, host.cpu_count == 1 ? " CPU" : " CPUs"));
  if (!host.cpu_model.empty()) facts.push_back(Printable(host.cpu_model));
  if (!facts.empty()) absl::StrAppend(&text, ": ", absl::StrJoin(facts, ", "));
  return text;
}

std::string EventText(const profile::Host& host) {
  const std::string name = host.event.empty() ? "unknown event" : Printable(host.event);
  if (host.frequency_hz > 0) return absl::StrCat(name, " at ", host.frequency_hz, " Hz");
  if (host.period > 0) return absl::StrCat(name, ", one sample every ", WithCommas(host.period));
  return name;
}

std::string WindowText(const Profile& profile) {
  const uint64_t length = profile.end_ns > profile.start_ns ? profile.end_ns - profile.start_ns : 0;
  return absl::StrCat(TimeText(profile.start_ns), " to ", TimeText(profile.end_ns), " (",
                      DurationText(length), ")");
}

std::string ModeText(const Profile& profile, const profile::ModeUse& use) {
  std::string text;
  if (profile.hosts.size() > 1) absl::StrAppend(&text, Printable(profile.hosts[use.host].hostname), ": ");
  absl::StrAppend(&text, ModeName(use.kind));
  if (!use.vpmu.empty()) absl::StrAppend(&text, " (vPMU mode ", Printable(use.vpmu), ")");
  if (!use.reason.empty()) absl::StrAppend(&text, ": ", Printable(use.reason));
  if (profile.modes.size() > 1) {
    absl::StrAppend(&text, " [", ShareText(use.samples, profile.totals.samples), " of the samples]");
  }
  return text;
}

std::vector<std::string> BlindSpots(const Profile& profile) {
  std::vector<std::string> sentences;
  for (const profile::ModeUse& use : profile.modes) {
    const std::string sentence(ModeBlindSpot(use.kind));
    if (sentence.empty() || std::find(sentences.begin(), sentences.end(), sentence) != sentences.end())
      continue;
    sentences.push_back(sentence);
  }
  return sentences;
}

std::vector<std::string> Warnings(const Profile& profile) {
  std::vector<std::string> warnings;
  for (const profile::Host& host : profile.hosts) {
    for (const std::string& note : host.notes) {
      warnings.push_back(profile.hosts.size() > 1
                             ? absl::StrCat(Printable(host.hostname), ": ", Printable(note))
                             : Printable(note));
    }
  }
  return warnings;
}

absl::string_view HappeningName(int kind) {
  switch (kind) {
    case proto::Incident::LOST:
      return "lost records";
    case proto::Incident::THROTTLED:
      return "throttled";
    case proto::Incident::QUEUE_FULL:
      return "samples shed";
    case proto::Incident::CPU_OFFLINE:
      return "CPU went offline";
    case proto::Incident::CPU_ONLINE:
      return "CPU came online";
    case proto::Incident::GAP:
      return "gap";
    case proto::Incident::FREQUENCY:
      return "frequency changed";
    case proto::Incident::UNKNOWN_RECORD:
      return "records of unknown type";
    case proto::Incident::BAD_RECORD:
      return "bad records";
    case proto::Incident::SILENT_CPU:
      return "silent CPU";
    case proto::Incident::SIDEBAND_LOST:
      return "mappings or names lost";
    default:
      return "incident";
  }
}

std::string DomainText(const Profile& profile, const profile::Domain& domain) {
  const std::string name = Printable(profile.str(domain.name));
  if (name.empty()) return absl::StrCat("domain ", domain.domid);
  return absl::StrCat(name, " (domain ", domain.domid, ")");
}

CoverageText DescribeCoverage(const Profile& profile) {
  const profile::Coverage& coverage = profile.coverage;
  CoverageText text;
  std::vector<std::string> missing;
  if (coverage.lost > 0) missing.push_back(absl::StrCat(WithCommas(coverage.lost), " records lost"));
  if (coverage.shed > 0) missing.push_back(absl::StrCat(WithCommas(coverage.shed), " samples shed"));
  if (coverage.throttled_ns > 0)
    missing.push_back(absl::StrCat(DurationText(coverage.throttled_ns), " throttled"));
  if (coverage.gap_ns > 0) missing.push_back(absl::StrCat(DurationText(coverage.gap_ns), " not sampled"));
  uint64_t silent_cpus = 0;
  for (const profile::CpuCoverage& cpu : coverage.cpus) silent_cpus += cpu.silent_ns > 0 ? 1 : 0;
  if (silent_cpus > 0)
    missing.push_back(absl::StrCat(silent_cpus, silent_cpus == 1 ? " CPU" : " CPUs", " silent"));
  if (coverage.bad_records > 0)
    missing.push_back(absl::StrCat(WithCommas(coverage.bad_records), " bad records"));
  if (coverage.sideband_lost > 0) missing.push_back("mappings or names may be missing");
  if (!coverage.damage.empty()) {
    missing.push_back(absl::StrCat(coverage.damage.size(),
                                   coverage.damage.size() == 1 ? " stretch" : " stretches",
                                   " of damaged input left out"));
  }
  text.complete = missing.empty();
  const size_t cpus = coverage.cpus.size();
  text.verdict = text.complete
                     ? absl::StrCat("complete: nothing lost on ", cpus, cpus == 1 ? " CPU" : " CPUs")
                     : absl::StrCat("incomplete: ", absl::StrJoin(missing, ", "));

  for (const profile::CpuCoverage& cpu : coverage.cpus) {
    std::vector<std::string> parts;
    if (cpu.lost > 0) parts.push_back(absl::StrCat(WithCommas(cpu.lost), " lost"));
    if (cpu.shed > 0) parts.push_back(absl::StrCat(WithCommas(cpu.shed), " shed"));
    if (cpu.throttled_ns > 0) parts.push_back(absl::StrCat("throttled for ", DurationText(cpu.throttled_ns)));
    if (cpu.silent_ns > 0) parts.push_back(absl::StrCat("silent for ", DurationText(cpu.silent_ns)));
    if (parts.empty()) continue;
    std::string where;
    if (profile.hosts.size() > 1) where = absl::StrCat(Printable(profile.hosts[cpu.host].hostname), " ");
    text.details.push_back(absl::StrCat(where, "CPU ", cpu.cpu, ": ", absl::StrJoin(parts, ", "), ", ",
                                        WithCommas(cpu.samples), " samples seen"));
  }
  for (const profile::Happening& happening : coverage.happenings) {
    std::string line = TimeText(happening.start_ns);
    if (profile.hosts.size() > 1)
      absl::StrAppend(&line, " ", Printable(profile.hosts[happening.host].hostname));
    if (happening.cpu >= 0) absl::StrAppend(&line, " CPU ", happening.cpu);
    absl::StrAppend(&line, " ", HappeningName(happening.kind));
    if (happening.end_ns > happening.start_ns) {
      absl::StrAppend(&line, " for ", DurationText(happening.end_ns - happening.start_ns));
    }
    if (happening.count > 0) absl::StrAppend(&line, " (", WithCommas(happening.count), ")");
    if (!happening.text.empty()) absl::StrAppend(&line, ": ", Printable(happening.text));
    text.details.push_back(std::move(line));
  }
  for (const profile::DamagedInput& damage : coverage.damage) {
    text.details.push_back(absl::StrCat(Printable(damage.file), ": offset ", damage.offset, ": ",
                                        Printable(damage.reason), " (", WithCommas(damage.bytes),
                                        " bytes left out)"));
  }
  if (coverage.unsealed_inputs > 0) {
    text.details.push_back(
        absl::StrCat(coverage.unsealed_inputs, " chunks are not sealed: no names in them"));
  }
  if (coverage.duplicate_inputs > 0) {
    text.details.push_back(
        absl::StrCat(coverage.duplicate_inputs, " chunks were given more than once, counted once"));
  }
  if (coverage.overlapping_inputs > 0) {
    text.details.push_back(absl::StrCat(coverage.overlapping_inputs,
                                        " chunks hold time that others hold as well, counted once"));
  }
  for (const std::string& note : coverage.notes) text.details.push_back(Printable(note));
  return text;
}

}  // namespace xenprof::exporter
