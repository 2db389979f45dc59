// What -o names.
#ifndef CLIENT_OUTPUT_FILE_H_
#define CLIENT_OUTPUT_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "xenprof/base/framing.h"
#include "xenprof/export/output.h"

namespace xenprof::client {

// A file appears whole or not at all: it is written beside its place and renamed by Commit. "-" is standard
// output; what is no regular file (a pipe, /dev/null) is written to directly. Errors name the file and the
// system's reason; Cancelled: the reader of a pipe went away, about which nobody needs to be told.
class OutputFile : public exporter::Output {
 public:
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path);
  // Removes what was written, unless committed.
  ~OutputFile() override;

  absl::Status Write(absl::string_view bytes) override;
  absl::Status Commit();

 private:
  OutputFile() = default;

  UniqueFd fd_;
  int target_ = -1;             // fd_, or standard output
  std::string name_;            // for messages
  std::string path_;            // to rename to; empty: written to directly
  std::string temporary_path_;  // empty: nothing to remove
};

}  // namespace xenprof::client

#endif  // CLIENT_OUTPUT_FILE_H_
