// Characters in Rust's mangled names.
#ifndef XENPROF_SYMBOLS_RUST_TEXT_H_
#define XENPROF_SYMBOLS_RUST_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace xenprof::symbols {

// Longer ones are not looked at.
inline constexpr size_t kMaxRustMangledBytes = 64 << 10;

// `c` must be a Unicode scalar value.
void AppendUtf8(std::string* to, uint32_t c);

// Punycode (RFC 3492) with '_' for '-', as v0 names have it. False when `digits` is none.
bool DecodeRustPunycode(absl::string_view digits, std::string* utf8);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_RUST_TEXT_H_
