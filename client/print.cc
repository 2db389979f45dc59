#include "client/print.h"

#include <cstdio>
#include <memory>
#include <string>

#include "client/command.h"
#include "client/output_file.h"

namespace xenprof::client {

int ReportError(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  if (!absl::IsCancelled(status)) {
    std::fprintf(stderr, "xenprofctl: %s\n", std::string(status.message()).c_str());
  }
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

int Print(absl::string_view text) {
  absl::StatusOr<std::unique_ptr<OutputFile>> output = OutputFile::Create("-");
  return ReportError(output.ok() ? (*output)->Write(text) : output.status());
}

}  // namespace xenprof::client
