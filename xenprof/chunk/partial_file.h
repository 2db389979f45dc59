// A file that grows by whole pieces under a temporary name and gets its own when it is complete.
#ifndef XENPROF_CHUNK_PARTIAL_FILE_H_
#define XENPROF_CHUNK_PARTIAL_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xenprof/base/framing.h"

namespace xenprof::chunk {

inline constexpr absl::string_view kPartialSuffix = ".partial";

// Errors name the file and the system's reason; codes by errno (ENOSPC, EDQUOT: ResourceExhausted).
class PartialFile {
 public:
  // Creates `path` + ".partial", which must not exist: 0640, close-on-exec, never through a symbolic link in
  // the last component. Holds an flock, so that recovery leaves it alone. With `replace`, a
  // partial file that nobody holds is removed first.
  static absl::StatusOr<std::unique_ptr<PartialFile>> Create(const std::string& path, bool replace = false);
  // Removes a partial file, if it is there.
  static void Remove(const std::string& partial_path);
  // Opens the partial file of `path` to go on with it. Unavailable when someone else holds it.
  static absl::StatusOr<std::unique_ptr<PartialFile>> Resume(const std::string& path);

  // Appends all of `piece` or nothing: after a failure the file is as it was, or, if even that failed, the
  // next Append first makes it so.
  absl::Status Append(absl::string_view piece);
  // Forgets everything behind `bytes` (at most bytes()).
  absl::Status CutBack(uint64_t bytes);
  // Durable under its final name, when `sync`. Refuses to replace a file unless `replace`. Once only.
  absl::Status Publish(bool sync, bool replace);

  uint64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }  // the final one
  const std::string& partial_path() const { return partial_path_; }
  bool published() const { return published_; }

 private:
  PartialFile(std::string path, UniqueFd folder, UniqueFd fd);

  std::string path_, partial_path_;
  UniqueFd folder_, fd_;
  uint64_t bytes_ = 0;
  bool torn_ = false;  // the file may be longer than bytes_
  bool published_ = false;
};

// "FILE: cannot WHAT: REASON", with a code fitting `error_number`.
absl::Status FileError(absl::string_view file, absl::string_view what, int error_number);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_PARTIAL_FILE_H_
