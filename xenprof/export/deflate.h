// zlib compression of a whole buffer.
#ifndef XENPROF_EXPORT_DEFLATE_H_
#define XENPROF_EXPORT_DEFLATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace xenprof::exporter {

enum class DeflateFormat {
  kZlib,
  kGzip
};  // RFC 1950, RFC 1952 (without name and time: equal input, equal output)

// `level` 1 to 9. Internal with zlib's reason.
absl::StatusOr<std::string> Deflate(absl::string_view bytes, DeflateFormat format, int level);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_DEFLATE_H_
