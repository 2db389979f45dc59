// Rust's manglings. Legacy: the C++ nested names of `_ZN ... 17h<16 hex digits>E`, with characters outside of
// identifiers written as $..$ (rustc's legacy symbol names). v0 is in rust_v0.cc.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "xenprof/symbols/demangle.h"
#include "xenprof/symbols/rust_text.h"
#include "xenprof/symbols/rust_v0.h"

namespace xenprof::symbols {
namespace {

// What LLVM adds to names: ".llvm." and upper-case hexadecimal digits. Other suffixes (".cold") are kept.
absl::string_view WithoutLlvmSuffix(absl::string_view name) {
  const size_t at = name.find(".llvm.");
  if (at == absl::string_view::npos) return name;
  for (char c : name.substr(at + 6)) {
    if (!absl::ascii_isxdigit(c) && c != '@') return name;
  }
  return name.substr(0, at);
}

bool IsLegacyHash(absl::string_view part) {
  if (part.size() != 17 || part[0] != 'h') return false;
  for (char c : part.substr(1)) {
    if (!absl::ascii_isdigit(c) && (c < 'a' || c > 'f')) return false;
  }
  return true;
}

// "$LT$T$u20$as$u20$..Trait$GT$" to "<T as ::Trait>". False for what rustc does not write.
bool UnescapeLegacy(absl::string_view part, std::string* out) {
  if (absl::StartsWith(part, "_$")) part.remove_prefix(1);
  while (!part.empty()) {
    if (part[0] == '.') {
      const bool two = part.size() > 1 && part[1] == '.';
      *out += two ? "::" : ".";
      part.remove_prefix(two ? 2 : 1);
    } else if (part[0] == '$') {
      const size_t end = part.find('$', 1);
      if (end == absl::string_view::npos) return false;
      const absl::string_view code = part.substr(1, end - 1);
      constexpr std::pair<absl::string_view, char> kCodes[] = {{"SP", '@'}, {"BP", '*'}, {"RF", '&'},
                                                               {"LT", '<'}, {"GT", '>'}, {"LP", '('},
                                                               {"RP", ')'}, {"C", ','}};
      bool known = false;
      for (const auto& [name, c] : kCodes) {
        if (code != name) continue;
        out->push_back(c);
        known = true;
      }
      uint32_t c = 0;
      if (!known) {
        if (code.size() < 2 || code.size() > 7 || code[0] != 'u' || !absl::SimpleHexAtoi(code.substr(1), &c))
          return false;
        if (c < 0x20 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return false;
        AppendUtf8(out, c);
      }
      part.remove_prefix(end + 1);
    } else {
      const size_t plain = std::min(part.find_first_of(".$"), part.size());
      out->append(part.data(), plain);
      part.remove_prefix(plain);
    }
  }
  return true;
}

std::string DemangleLegacy(absl::string_view name) {
  absl::string_view rest = WithoutLlvmSuffix(name);
  if (!absl::ConsumePrefix(&rest, "_ZN")) return "";
  std::string plain;
  absl::string_view last;
  while (!rest.empty() && absl::ascii_isdigit(rest[0])) {
    size_t size = 0;
    while (!rest.empty() && absl::ascii_isdigit(rest[0]) && size < kMaxRustMangledBytes) {
      size = size * 10 + (rest[0] - '0');
      rest.remove_prefix(1);
    }
    if (size == 0 || size > rest.size()) return "";
    if (!last.empty()) {  // the one before is not the hash
      if (!plain.empty()) plain += "::";
      if (!UnescapeLegacy(last, &plain)) return "";
    }
    last = rest.substr(0, size);
    rest.remove_prefix(size);
  }
  if (!IsLegacyHash(last) || plain.empty() || !absl::ConsumePrefix(&rest, "E")) return "";
  if (!rest.empty() && rest[0] != '.') return "";
  return absl::StrCat(plain, rest);
}

}  // namespace

std::string DemangleRust(absl::string_view name) {
  if (name.size() > kMaxRustMangledBytes) return "";
  if (absl::StartsWith(name, "_ZN")) return DemangleLegacy(name);
  absl::string_view rest = WithoutLlvmSuffix(name);
  if (!absl::ConsumePrefix(&rest, "_R")) return "";
  return DemangleRustV0(rest);
}

}  // namespace xenprof::symbols
