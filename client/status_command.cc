// xenprofctl status: what the daemon does right now.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/command.h"
#include "client/control_client.h"
#include "client/json.h"
#include "client/print.h"
#include "xenprof/base/types.h"
#include "xenprof/export/summary.h"

namespace xenprof::client {
namespace {

using exporter::DurationText;
using exporter::Printable;
using exporter::WithCommas;

ModeKind KindOf(const proto::Mode& mode) {
  return proto::Mode::Kind_IsValid(mode.kind()) ? static_cast<ModeKind>(mode.kind()) : ModeKind::kUnspecified;
}

// CLOCK_MONOTONIC_RAW, as sample times are.
uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

std::string StatusText(const proto::StatusResponse& status) {
  std::string out;
  const auto field = [&](absl::string_view name, const std::string& value) {
    absl::StrAppendFormat(&out, "%-10s %s\n", name, value);
  };
  field("daemon", absl::StrCat(Printable(status.producer()), ", pid ", status.pid(), ", up ",
                               DurationText(status.uptime_ns())));
  if (!status.writing()) field("WRITING", "stopped: nothing is recorded, see the notes below");
  std::string mode(ModeName(KindOf(status.mode())));
  if (!status.mode().vpmu().empty())
    absl::StrAppend(&mode, " (vPMU mode ", Printable(status.mode().vpmu()), ")");
  if (!status.mode().reason().empty()) absl::StrAppend(&mode, ": ", Printable(status.mode().reason()));
  field("mode", mode);
  const absl::string_view blind_spot = ModeBlindSpot(KindOf(status.mode()));
  if (!blind_spot.empty()) field("unseen", std::string(blind_spot));
  field("event", status.event().frequency_hz() > 0 ? absl::StrCat(Printable(status.event().name()), " at ",
                                                                  status.event().frequency_hz(), " Hz")
                                                   : Printable(status.event().name()));
  field("samples", absl::StrCat(WithCommas(status.samples()), "; ", WithCommas(status.lost()),
                                " records lost, ", WithCommas(status.shed()), " samples shed"));
  field("chunks",
        absl::StrCat(WithCommas(status.chunks_sealed()), " sealed, ", WithCommas(status.bytes_written()),
                     " bytes written, in ", Printable(status.state_dir())));
  field("memory", absl::StrFormat("%.1f MiB, rings %d KiB a CPU", status.memory_bytes() / 1048576.0,
                                  status.ring_bytes() / 1024));
  std::string cpu = DurationText(status.cpu_ns());
  if (status.uptime_ns() > 0) {
    absl::StrAppendFormat(&cpu, " (%.2f %% of one CPU)", 100.0 * status.cpu_ns() / status.uptime_ns());
  }
  field("CPU time", cpu);
  const proto::HypervisorFacts& xen = status.hypervisor();
  if (!xen.version().empty()) {
    field("xen", absl::StrCat(Printable(xen.version()), xen.changeset().empty() ? "" : ", changeset ",
                              Printable(xen.changeset())));
    if (!xen.command_line().empty()) field("", absl::StrCat("command line: ", Printable(xen.command_line())));
  }
  if (!xen.unavailable_reason().empty())
    field("xen", absl::StrCat("not known: ", Printable(xen.unavailable_reason())));
  for (const proto::HypervisorFacts::Guest& domain : xen.domains()) {
    field(domain.domid() == 0 ? "domains" : "",
          absl::StrCat(domain.domid(), " ", Printable(domain.name()), ", ", domain.vcpus(),
                       domain.vcpus() == 1 ? " vCPU" : " vCPUs"));
  }
  for (const proto::Note& note : status.notes()) {
    field(note.severity() == proto::Note::WARNING ? "WARNING" : "note", Printable(note.text()));
  }
  const uint64_t now_ns = NowNs();
  absl::StrAppendFormat(&out, "\n%5s  %-7s %14s %10s %10s %12s %12s  %s\n", "CPU", "state", "samples", "lost",
                        "shed", "throttled", "last sample", "problem");
  for (const proto::StatusResponse::CpuStatus& cpu_status : status.cpus()) {
    std::string last = "none yet";
    if (cpu_status.last_sample_ns() > 0) {
      const uint64_t age = now_ns > cpu_status.last_sample_ns() ? now_ns - cpu_status.last_sample_ns() : 0;
      last = absl::StrCat(DurationText(age), " ago");
    }
    absl::StrAppendFormat(&out, "%5d  %-7s %14s %10s %10s %12s %12s  %s\n", cpu_status.cpu(),
                          cpu_status.online() ? "online" : "offline", WithCommas(cpu_status.samples()),
                          WithCommas(cpu_status.lost()), WithCommas(cpu_status.shed()),
                          cpu_status.throttled_ns() == 0 ? "-" : DurationText(cpu_status.throttled_ns()),
                          last, Printable(cpu_status.problem()));
  }
  return out;
}

std::string StatusJson(const proto::StatusResponse& status) {
  JsonWriter json;
  json.BeginObject();
  json.Key("producer").String(status.producer());
  json.Key("pid").Unsigned(status.pid());
  json.Key("uptime_ns").Unsigned(status.uptime_ns());
  json.Key("writing").Bool(status.writing());
  json.Key("mode").String(ModeName(KindOf(status.mode())));
  json.Key("mode_reason").String(status.mode().reason());
  json.Key("blind_spot").String(ModeBlindSpot(KindOf(status.mode())));
  json.Key("vpmu").String(status.mode().vpmu());
  json.Key("event").String(status.event().name());
  json.Key("frequency_hz").Unsigned(status.event().frequency_hz());
  json.Key("refused_attributes").BeginArray();
  for (const std::string& attribute : status.event().refused_attributes()) json.String(attribute);
  json.EndArray();
  json.Key("samples").Unsigned(status.samples());
  json.Key("lost").Unsigned(status.lost());
  json.Key("shed").Unsigned(status.shed());
  json.Key("chunks_sealed").Unsigned(status.chunks_sealed());
  json.Key("bytes_written").Unsigned(status.bytes_written());
  json.Key("state_dir").String(status.state_dir());
  json.Key("memory_bytes").Unsigned(status.memory_bytes());
  json.Key("cpu_ns").Unsigned(status.cpu_ns());
  json.Key("ring_bytes").Unsigned(status.ring_bytes());
  json.Key("xen").BeginObject();
  json.Key("version").String(status.hypervisor().version());
  json.Key("changeset").String(status.hypervisor().changeset());
  json.Key("command_line").String(status.hypervisor().command_line());
  json.Key("capabilities").String(status.hypervisor().capabilities());
  json.Key("build_id").String(exporter::HexText(status.hypervisor().build_id()));
  json.Key("unavailable_reason").String(status.hypervisor().unavailable_reason());
  json.Key("domains").BeginArray();
  for (const proto::HypervisorFacts::Guest& domain : status.hypervisor().domains()) {
    json.BeginObject();
    json.Key("domid").Unsigned(domain.domid());
    json.Key("uuid").String(exporter::HexText(domain.uuid()));
    json.Key("name").String(domain.name());
    json.Key("vcpus").Unsigned(domain.vcpus());
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  json.Key("notes").BeginArray();
  for (const proto::Note& note : status.notes()) {
    json.BeginObject();
    json.Key("severity").String(note.severity() == proto::Note::WARNING ? "warning" : "info");
    json.Key("text").String(note.text());
    json.EndObject();
  }
  json.EndArray();
  json.Key("cpus").BeginArray();
  for (const proto::StatusResponse::CpuStatus& cpu : status.cpus()) {
    json.BeginObject();
    json.Key("cpu").Unsigned(cpu.cpu());
    json.Key("online").Bool(cpu.online());
    json.Key("samples").Unsigned(cpu.samples());
    json.Key("lost").Unsigned(cpu.lost());
    json.Key("shed").Unsigned(cpu.shed());
    json.Key("throttled_ns").Unsigned(cpu.throttled_ns());
    json.Key("last_sample_ns").Unsigned(cpu.last_sample_ns());
    json.Key("problem").String(cpu.problem());
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return json.Take();
}

int RunStatus(bool json, const CommandContext& context) {
  absl::StatusOr<ControlClient> client = ControlClient::Connect(context.socket_path);
  if (!client.ok()) return ReportError(client.status());
  const absl::StatusOr<proto::StatusResponse> status = client->Status();
  if (!status.ok()) return ReportError(status.status());
  return Print(json ? StatusJson(*status) : StatusText(*status));
}

}  // namespace

void AddStatusCommand(CLI::App& app, CommandContext& context) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("status", "What the daemon does: mode, samples, losses, memory, each CPU");
  command->add_flag("--json", *json, "As JSON");
  command->callback([json, &context] { context.exit_status = RunStatus(*json, context); });
}

}  // namespace xenprof::client
