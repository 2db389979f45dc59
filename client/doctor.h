// xenprofctl doctor: what keeps this host from being profiled in full. Works without the daemon.
#ifndef CLIENT_DOCTOR_H_
#define CLIENT_DOCTOR_H_

#include <string>

#include "client/command.h"

namespace xenprof::client {

struct DoctorOptions {
  bool json = false;
  bool no_probe = false;   // do not try bit 3 of pmu_features
  std::string module_dir;  // where xenprof-xenctrl.so is looked for first
  std::string root = "/";  // hidden: another tree of /sys, /proc, /etc, for tests
};

// Prints the findings on stdout. kExitOk when the worst is ok or information, kExitFailed for a warning or an
// error.
int RunDoctorCommand(const DoctorOptions& options);

void AddDoctorCommand(CLI::App& app, CommandContext& context);

}  // namespace xenprof::client

#endif  // CLIENT_DOCTOR_H_
