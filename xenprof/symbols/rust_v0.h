// Rust's v0 mangling (RFC 2603).
#ifndef XENPROF_SYMBOLS_RUST_V0_H_
#define XENPROF_SYMBOLS_RUST_V0_H_

#include <string>

#include "absl/strings/string_view.h"

namespace xenprof::symbols {

// `text` is what follows "_R". Empty when it is no such name, or one too long or too deep to be sane. Without
// hashes and without the types of constants, as Rust's own tools print with "{:#}".
std::string DemangleRustV0(absl::string_view text);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_RUST_V0_H_
