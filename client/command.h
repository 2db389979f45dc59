// How a command of xenprofctl joins the program: one file per command, each with one Add...Command().
//
//   void AddListCommand(CLI::App& app, CommandContext& context) {
//     auto options = std::make_shared<Options>();
//     CLI::App* command = app.add_subcommand("list", "What chunks there are");
//     command->add_flag("--json", options->json, "...");
//     command->callback([options, &context] { context.exit_status = RunList(*options, context); });
//   }
//
// The callback never throws and never calls exit(). `context` outlives the parse; `context.socket_path` and
// what else is global is final when the callback runs.
#ifndef CLIENT_COMMAND_H_
#define CLIENT_COMMAND_H_

#include <string>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace xenprof::client {

enum ExitStatus : int {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 2,  // wrong arguments; the parser answers with it too
};

struct CommandContext {
  std::string socket_path = "/run/xenprofd/control.sock";
  bool socket_given = false;  // --socket was on the command line
  int exit_status = kExitOk;
};

// All of the program. In the library with the commands: whatever sees the parser, which is all headers, costs as much
// to compile as the rest of the client.
int Main(int argc, char** argv);

// "xenprofctl: MESSAGE" on stderr; kExitUsage for InvalidArgument, else kExitFailed.
int ReportError(const absl::Status& status);

void AddStatusCommand(CLI::App& app, CommandContext& context);
void AddListCommand(CLI::App& app, CommandContext& context);
void AddVerifyCommand(CLI::App& app, CommandContext& context);
void AddSnapshotCommand(CLI::App& app, CommandContext& context);
void AddExportCommand(CLI::App& app, CommandContext& context);
void AddReportCommand(CLI::App& app, CommandContext& context);
// Declared in doctor.h and import.h too:
//   void AddDoctorCommand(CLI::App& app, CommandContext& context);
//   void AddImportCommand(CLI::App& app, CommandContext& context);

}  // namespace xenprof::client

#endif  // CLIENT_COMMAND_H_
