#include "xenprof/export/output.h"

#include "absl/strings/str_cat.h"

namespace xenprof::exporter {

absl::Status CheckTotal(absl::string_view format, uint64_t written, uint64_t expected) {
  if (written == expected) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the ", format, " export holds ", written, " of ", expected,
                   " samples; this is a fault of xenprof, the output is not to be used"));
}

}  // namespace xenprof::exporter
