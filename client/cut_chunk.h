// A window of chunks as one chunk file.
#ifndef CLIENT_CUT_CHUNK_H_
#define CLIENT_CUT_CHUNK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "xenprof/profile/inputs.h"

namespace xenprof::client {

// Writes `path` ("-": standard output) with exactly the samples of `window`. The file appears whole or not at
// all. The inputs have to be of one boot of one host.
absl::Status CutChunk(std::vector<profile::Input> inputs, const profile::TimeWindow& window, bool salvage,
                      const std::string& path);

}  // namespace xenprof::client

#endif  // CLIENT_CUT_CHUNK_H_
