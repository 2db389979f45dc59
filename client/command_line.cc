// The command line of xenprofctl.
#include <CLI/CLI.hpp>

#include "client/command.h"
#include "client/doctor.h"
#include "client/import.h"

namespace xenprof::client {

int Main(int argc, char** argv) {
  CommandContext context;
  CLI::App app("Profiles of a whole Xen host: hypervisor, dom0 and guests", "xenprofctl");
  app.set_version_flag("--version", "xenprofctl " XENPROF_VERSION);
  app.require_subcommand(1);
  // --socket may stand on either side of the command.
  app.fallthrough();
  CLI::Option* socket = app.add_option("--socket", context.socket_path, "The daemon's control socket");
  socket->capture_default_str();
  socket->each([&context](const std::string&) { context.socket_given = true; });
  AddStatusCommand(app, context);
  AddListCommand(app, context);
  AddVerifyCommand(app, context);
  AddSnapshotCommand(app, context);
  AddExportCommand(app, context);
  AddReportCommand(app, context);
  AddImportCommand(app, context);
  AddDoctorCommand(app, context);
  app.footer("Exit status: 0, 1 (failed), 2 (wrong arguments).");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return context.exit_status;
}

}  // namespace xenprof::client
