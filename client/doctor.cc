#include "client/doctor.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "client/doctor_render.h"
#include "xenprof/xen/doctor.h"
#include "xenprof/xen/host.h"
#include "xenprof/xen/hypervisor.h"

namespace xenprof::client {

int RunDoctorCommand(const DoctorOptions& options) {
  xen::DoctorInputs inputs;
  inputs.root = options.root;
  inputs.probe = !options.no_probe;
  inputs.privileged = geteuid() == 0;
  std::unique_ptr<xen::Hypervisor> hypervisor;
  if (xen::DetectXenHost(options.root).on_xen) {
    absl::StatusOr<std::unique_ptr<xen::Hypervisor>> opened =
        xen::OpenHypervisor({.module_dir = options.module_dir});
    if (opened.ok()) {
      hypervisor = *std::move(opened);
      inputs.hypervisor = hypervisor.get();
    } else {
      inputs.hypervisor_problem = std::string(opened.status().message());
    }
  }
  const std::vector<xen::Finding> findings = xen::RunDoctor(inputs);
  const std::string text = options.json ? RenderDoctorJson(findings) : RenderDoctorText(findings);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return ReportError(absl::DataLossError("cannot write to standard output"));
  }
  return xen::WorstSeverity(findings) >= xen::Severity::kWarning ? kExitFailed : kExitOk;
}

void AddDoctorCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor",
      "What keeps this host from being profiled in full, why it matters, and the line that mends it");
  command->add_flag("--json", options->json, "Findings as JSON");
  command->add_flag(
      "--no-probe", options->no_probe,
      "Change nothing at all: do not try Xen's stack feature by setting it and putting it back");
  command->add_option("--module-dir", options->module_dir, "Where xenprof-xenctrl.so is looked for first");
  command->add_option("--root", options->root, "")->group("");
  command->callback([options, &context] { context.exit_status = RunDoctorCommand(*options); });
}

}  // namespace xenprof::client
