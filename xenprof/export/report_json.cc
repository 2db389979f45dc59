#include "xenprof/export/report_json.h"

#include <algorithm>
#include <map>
#include <string>

#include "xenprof/base/json.h"
#include "xenprof/export/function_totals.h"
#include "xenprof/export/summary.h"

namespace xenprof::exporter {

using profile::Profile;

namespace {

void AddHosts(const Profile& profile, JsonWriter* json) {
  json->Key("hosts").BeginArray();
  for (const profile::Host& host : profile.hosts) {
    json->BeginObject();
    json->Key("hostname").String(host.hostname);
    json->Key("boot_id").String(host.boot_id);
    json->Key("kernel").String(host.kernel_release);
    json->Key("machine").String(host.machine);
    json->Key("cpu_model").String(host.cpu_model);
    json->Key("cpus").Unsigned(host.cpu_count);
    json->Key("event").String(host.event);
    json->Key("frequency_hz").Unsigned(host.frequency_hz);
    json->Key("period").Unsigned(host.period);
    json->Key("xen_version").String(host.xen_version);
    json->Key("xen_changeset").String(host.xen_changeset);
    json->Key("xen_command_line").String(host.xen_command_line);
    json->Key("xen_unavailable").String(host.xen_unavailable);
    json->Key("samples").Unsigned(host.samples);
    json->Key("warnings").BeginArray();
    for (const std::string& note : host.notes) json->String(note);
    json->EndArray().EndObject();
  }
  json->EndArray();
}

void AddModes(const Profile& profile, JsonWriter* json) {
  json->Key("modes").BeginArray();
  for (const profile::ModeUse& use : profile.modes) {
    json->BeginObject();
    json->Key("host").String(profile.hosts[use.host].hostname);
    json->Key("mode").String(ModeName(use.kind));
    json->Key("reason").String(use.reason);
    json->Key("vpmu").String(use.vpmu);
    json->Key("samples").Unsigned(use.samples);
    json->EndObject();
  }
  json->EndArray();
  json->Key("blind_spots").BeginArray();
  for (const std::string& sentence : BlindSpots(profile)) json->String(sentence);
  json->EndArray();
}

void AddCoverage(const Profile& profile, JsonWriter* json) {
  const profile::Coverage& coverage = profile.coverage;
  const CoverageText text = DescribeCoverage(profile);
  json->Key("coverage").BeginObject();
  json->Key("complete").Bool(text.complete);
  json->Key("verdict").String(text.verdict);
  json->Key("lost").Unsigned(coverage.lost);
  json->Key("shed").Unsigned(coverage.shed);
  json->Key("throttled_ns").Unsigned(coverage.throttled_ns);
  json->Key("gap_ns").Unsigned(coverage.gap_ns);
  json->Key("bad_records").Unsigned(coverage.bad_records);
  json->Key("unknown_records").Unsigned(coverage.unknown_records);
  json->Key("sideband_lost").Unsigned(coverage.sideband_lost);
  json->Key("unsealed_inputs").Unsigned(coverage.unsealed_inputs);
  json->Key("duplicate_inputs").Unsigned(coverage.duplicate_inputs);
  json->Key("overlapping_inputs").Unsigned(coverage.overlapping_inputs);
  json->Key("cpus").BeginArray();
  for (const profile::CpuCoverage& cpu : coverage.cpus) {
    json->BeginObject();
    json->Key("host").String(profile.hosts[cpu.host].hostname);
    json->Key("cpu").Unsigned(cpu.cpu);
    json->Key("samples").Unsigned(cpu.samples);
    json->Key("lost").Unsigned(cpu.lost);
    json->Key("shed").Unsigned(cpu.shed);
    json->Key("throttled_ns").Unsigned(cpu.throttled_ns);
    json->Key("sampled_ns").Unsigned(cpu.sampled_ns);
    json->Key("silent_ns").Unsigned(cpu.silent_ns);
    json->EndObject();
  }
  json->EndArray();
  json->Key("happenings").BeginArray();
  for (const profile::Happening& happening : coverage.happenings) {
    json->BeginObject();
    json->Key("host").String(profile.hosts[happening.host].hostname);
    json->Key("cpu");
    if (happening.cpu < 0) {
      json->Null();
    } else {
      json->Signed(happening.cpu);
    }
    json->Key("kind").String(HappeningName(happening.kind));
    json->Key("start_ns").Signed(happening.start_ns);
    json->Key("end_ns").Signed(happening.end_ns);
    json->Key("count").Unsigned(happening.count);
    json->Key("text").String(happening.text);
    json->EndObject();
  }
  json->EndArray();
  json->Key("damage").BeginArray();
  for (const profile::DamagedInput& damage : coverage.damage) {
    json->BeginObject();
    json->Key("file").String(damage.file);
    json->Key("offset").Unsigned(damage.offset);
    json->Key("bytes").Unsigned(damage.bytes);
    json->Key("reason").String(damage.reason);
    json->EndObject();
  }
  json->EndArray().EndObject();
}

void AddDomains(const Profile& profile, JsonWriter* json) {
  std::map<uint32_t, uint64_t> domains;
  for (const profile::Sample& sample : profile.samples) {
    if (sample.domain != 0) domains[sample.domain] += sample.count;
  }
  json->Key("domains").BeginArray();
  for (const auto& [id, count] : domains) {
    const profile::Domain& domain = profile.domains[id];
    json->BeginObject();
    json->Key("domid").Unsigned(domain.domid);
    json->Key("name").String(profile.str(domain.name));
    json->Key("uuid").String(HexText(domain.uuid));
    json->Key("method").Unsigned(domain.method);
    json->Key("confidence_percent").Unsigned(domain.confidence_percent);
    json->Key("samples").Unsigned(count);
    json->EndObject();
  }
  json->EndArray();
}

}  // namespace

absl::Status ExportReportJson(const Profile& profile, size_t max_functions, Output* output) {
  const FunctionTotals totals = SumFunctions(profile);
  JsonWriter json;
  json.BeginObject();
  json.Key("samples").Unsigned(profile.totals.samples);
  json.Key("cpu_ns").Unsigned(profile.totals.time_ns);
  json.Key("start_ns").Signed(profile.start_ns);
  json.Key("end_ns").Signed(profile.end_ns);
  json.Key("chunks").Unsigned(profile.chunks);
  json.Key("guessed_origin").Unsigned(profile.totals.guessed_origin);
  json.Key("truncated_stacks").Unsigned(profile.totals.truncated);
  json.Key("no_user_callers").Unsigned(profile.totals.no_user_callers);
  json.Key("without_stack").Unsigned(totals.without_stack);
  AddHosts(profile, &json);
  AddModes(profile, &json);
  AddCoverage(profile, &json);
  json.Key("origins").BeginObject();
  uint64_t written = 0;
  for (int i = 0; i < kOriginCount; ++i) {
    const uint64_t count = profile.totals.by_origin[static_cast<size_t>(i)];
    written += count;
    json.Key(OriginName(static_cast<Origin>(i))).Unsigned(count);
  }
  json.EndObject();
  AddDomains(profile, &json);
  json.Key("function_count").Unsigned(totals.functions.size());
  json.Key("functions").BeginArray();
  const size_t rows =
      max_functions == 0 ? totals.functions.size() : std::min(max_functions, totals.functions.size());
  for (size_t i = 0; i < rows; ++i) {
    const profile::Function& function = profile.functions[totals.functions[i].function];
    json.BeginObject();
    json.Key("name").String(profile.str(function.name));
    json.Key("named").Bool(function.named);
    json.Key("module").String(profile.str(function.module));
    json.Key("kind").String(FrameKindName(function.kind));
    json.Key("self").Unsigned(totals.functions[i].self);
    json.Key("total").Unsigned(totals.functions[i].total);
    json.EndObject();
  }
  json.EndArray();
  if (profile.granularity == profile::Granularity::kAddress) {
    json.Key("lines").BeginArray();
    for (size_t i = 0; i < totals.lines.size() && (max_functions == 0 || i < max_functions); ++i) {
      const LineTotal& line = totals.lines[i];
      json.BeginObject();
      json.Key("function").String(profile.str(profile.functions[line.function].name));
      json.Key("file").String(profile.str(line.file));
      json.Key("line").Unsigned(line.line);
      json.Key("self").Unsigned(line.self);
      json.EndObject();
    }
    json.EndArray();
  }
  json.EndObject();
  absl::Status total = CheckTotal("json", written, profile.totals.samples);
  if (!total.ok()) return total;
  return output->Write(json.Take());
}

}  // namespace xenprof::exporter
