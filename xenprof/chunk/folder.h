// What lies in a folder.
#ifndef XENPROF_CHUNK_FOLDER_H_
#define XENPROF_CHUNK_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace xenprof::chunk {

struct FolderEntry {
  std::string name;
  uint64_t bytes;
  absl::Time modified;
};
// The regular files of a folder (no symbolic links), by name.
absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& folder);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_FOLDER_H_
