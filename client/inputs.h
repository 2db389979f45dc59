// The one grammar of inputs: chunk files, folders, or what the running daemon keeps.
#ifndef CLIENT_INPUTS_H_
#define CLIENT_INPUTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/command.h"
#include "client/time_arguments.h"
#include "xenprof/profile/inputs.h"

namespace xenprof::client {

inline constexpr char kDefaultStateDir[] = "/var/lib/xenprofd";

struct InputArguments {
  std::vector<std::string> paths;
  WindowArguments window;
  bool salvage = false;
};
void AddInputOptions(CLI::App* command, InputArguments* arguments);

// The chunks meant: those named, else those of the daemon that listens on the socket, else those in
// kDefaultStateDir unless a socket was named. Never empty.
absl::StatusOr<std::vector<profile::Input>> ResolveInputs(const std::vector<std::string>& paths,
                                                          const CommandContext& context);

}  // namespace xenprof::client

#endif  // CLIENT_INPUTS_H_
