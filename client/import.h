// xenprofctl import: a perf.data becomes a chunk.
#ifndef CLIENT_IMPORT_H_
#define CLIENT_IMPORT_H_

#include "client/command.h"

namespace xenprof::client {

void AddImportCommand(CLI::App& app, CommandContext& context);

}  // namespace xenprof::client

#endif  // CLIENT_IMPORT_H_
