// UTF-8, told from bytes that are not.
#ifndef XENPROF_BASE_UTF8_H_
#define XENPROF_BASE_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace xenprof {

// Length of the well-formed sequence `text` begins with (RFC 3629: no surrogates, no overlong forms), else 0.
// `text` is not empty.
size_t Utf8Length(absl::string_view text);

// `text` with every byte that is part of no well-formed sequence as U+FFFD. Names in a profile come from
// files and processes: they may be anything.
std::string ToUtf8(absl::string_view text);

}  // namespace xenprof

#endif  // XENPROF_BASE_UTF8_H_
