#include "client/inputs.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/control_client.h"

namespace xenprof::client {

void AddInputOptions(CLI::App* command, InputArguments* arguments) {
  command->add_option("inputs", arguments->paths,
                      "Chunk files (*.xenprof) or folders; without any, what the running daemon keeps");
  command->add_option("--from", arguments->window.from,
                      "Start of the window: 2026-11-30T23:59:01Z, '2026-11-30 23:59', 23:59:01, @SECONDS");
  command->add_option("--to", arguments->window.to, "End of the window, itself not in it");
  command->add_option("--last", arguments->window.last,
                      "Only the last so much of what there is: 30, 5min, 2h");
  command->add_flag("--salvage", arguments->salvage,
                    "Take what is good of damaged chunks and say what is missing");
}

absl::StatusOr<std::vector<profile::Input>> ResolveInputs(const std::vector<std::string>& paths,
                                                          const CommandContext& context) {
  std::vector<std::string> sources = paths;
  std::string not_running;
  if (sources.empty()) {
    absl::StatusOr<ControlClient> client = ControlClient::Connect(context.socket_path);
    if (client.ok()) {
      absl::StatusOr<proto::StatusResponse> status = client->Status();
      if (!status.ok()) return status.status();
      sources.push_back(status->state_dir());
    } else if (!absl::IsUnavailable(client.status()) || context.socket_given) {
      return client.status();
    } else {
      not_running = std::string(client.status().message());
      sources.push_back(kDefaultStateDir);
    }
  }
  absl::StatusOr<std::vector<profile::Input>> inputs = profile::ExpandInputs(sources);
  if (!not_running.empty() && (!inputs.ok() || inputs->empty())) {
    return absl::NotFoundError(
        absl::StrCat(not_running, "; there are no chunks in ", kDefaultStateDir, " either"));
  }
  if (!inputs.ok()) return inputs.status();
  if (inputs->empty()) {
    return absl::NotFoundError(
        absl::StrCat(sources.front(), ": no sealed chunk in it", paths.empty() ? " yet" : ""));
  }
  return inputs;
}

}  // namespace xenprof::client
