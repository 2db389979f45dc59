// Standard output, checked.
#ifndef CLIENT_PRINT_H_
#define CLIENT_PRINT_H_

#include "absl/strings/string_view.h"

namespace xenprof::client {

// Writes all of `text` to standard output. kExitOk, or kExitFailed after telling why; a reader that went away
// is not told.
int Print(absl::string_view text);

}  // namespace xenprof::client

#endif  // CLIENT_PRINT_H_
