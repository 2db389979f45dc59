#include "xenprof/symbols/demangle.h"

#include <cxxabi.h>

#include <cmath>
#include <cstdlib>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace xenprof::symbols {
namespace {

constexpr size_t kMaxMangledBytes = 8 << 10;
constexpr double kMaxExpandedBytes = 16 << 20;

// The library's demangler has no limit on its output, and a name of a hundred bytes whose types refer to each
// other can ask for gigabytes. Each back reference can at most repeat what came before it: with n of them,
// the worst arrangement triples the text n/3 times. Names people write stay far below the limit.
bool MayExplode(absl::string_view mangled) {
  size_t references = 0;
  for (size_t i = 0; i + 1 < mangled.size(); ++i) {
    if ((mangled[i] != 'S' && mangled[i] != 'T') || absl::ascii_isalpha(mangled[i + 1])) {
      // St, Sa, Ss, ... are fixed abbreviations; S<upper case digit> is a reference.
      if (mangled[i] != 'S' || !absl::ascii_isupper(mangled[i + 1])) continue;
    }
    const size_t end = mangled.find('_', i + 1);
    if (end != absl::string_view::npos && end - i <= 4) ++references;
  }
  return static_cast<double>(mangled.size()) * std::pow(3.0, static_cast<double>(references) / 3) >
         kMaxExpandedBytes;
}

// `_ZN3foo3barI...` to "foo::bar<...>": the qualified name alone, from its length-prefixed parts.
std::string Abridged(absl::string_view mangled) {
  absl::string_view rest = mangled.substr(2);
  const bool nested = !rest.empty() && rest[0] == 'N';
  if (nested) rest.remove_prefix(1);
  while (!rest.empty() && (rest[0] == 'K' || rest[0] == 'V' || rest[0] == 'r')) rest.remove_prefix(1);
  std::string name;
  if (absl::StartsWith(rest, "St")) {
    name = "std";
    rest.remove_prefix(2);
  }
  while (!rest.empty() && absl::ascii_isdigit(rest[0])) {
    size_t length = 0;
    while (!rest.empty() && absl::ascii_isdigit(rest[0]) && length < kMaxMangledBytes) {
      length = length * 10 + (rest[0] - '0');
      rest.remove_prefix(1);
    }
    if (length > rest.size()) return std::string(mangled);
    if (!name.empty()) name += "::";
    name.append(rest.data(), length);
    rest.remove_prefix(length);
    if (!nested) break;
  }
  if (name.empty() || name == "std") return std::string(mangled);
  if (!rest.empty() && rest[0] == 'I') name += "<...>";
  return name;
}

}  // namespace

std::string Demangle(absl::string_view name) {
  std::string rust = DemangleRust(name);
  if (!rust.empty()) return rust;
  if (!absl::StartsWith(name, "_Z") || name.size() > kMaxMangledBytes) return std::string(name);
  if (MayExplode(name)) return Abridged(name);
  int status = 0;
  const std::string terminated(name);
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(terminated.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0 || plain == nullptr) return terminated;
  return plain.get();
}

}  // namespace xenprof::symbols
