// Readable names for C++ and Rust symbols.
#ifndef XENPROF_SYMBOLS_DEMANGLE_H_
#define XENPROF_SYMBOLS_DEMANGLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace xenprof::symbols {

// C++ (Itanium ABI, "_Z"), Rust's legacy ("_ZN...17h<hash>E") and v0 ("_R") manglings; anything else, and
// what cannot be demangled within sane limits of time and size, comes back as it is. Suffixes that compilers
// add (".cold",
// ".llvm.123", ".constprop.0") are kept for C++ in the form the C++ library shows and cut for Rust if they
// are LLVM's.
std::string Demangle(absl::string_view name);

// Rust's two manglings; empty when `name` is neither. Hashes are left out.
std::string DemangleRust(absl::string_view name);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_DEMANGLE_H_
