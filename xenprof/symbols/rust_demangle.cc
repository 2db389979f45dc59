// Rust's manglings. Legacy: the C++ nested names of `_ZN ... 17h<16 hex digits>E`, with characters outside of
// identifiers written as $..$ (rustc's legacy symbol names). v0: RFC 2603.
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

namespace xenprof::symbols {
namespace {

constexpr size_t kMaxMangledBytes = 64 << 10;
constexpr size_t kMaxPlainBytes = 64 << 10;
constexpr int kMaxDepth = 300;

void AppendUtf8(std::string* to, uint32_t c) {
  if (c < 0x80) {
    to->push_back(static_cast<char>(c));
    return;
  }
  if (c >= 0x800) {
    if (c >= 0x10000) {
      to->push_back(static_cast<char>(0xf0 | c >> 18));
      to->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3f)));
    } else {
      to->push_back(static_cast<char>(0xe0 | c >> 12));
    }
    to->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3f)));
  } else {
    to->push_back(static_cast<char>(0xc0 | c >> 6));
  }
  to->push_back(static_cast<char>(0x80 | (c & 0x3f)));
}

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
    while (!rest.empty() && absl::ascii_isdigit(rest[0]) && size < kMaxMangledBytes) {
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

class V0Demangler {
 public:
  explicit V0Demangler(absl::string_view text) : text_(text) {}

  std::string Run() {
    if (!text_.empty() && absl::ascii_isdigit(text_[0])) return "";  // a version not known yet
    Path(true);
    if (!failed_ && at_ < text_.size() && absl::ascii_isupper(text_[at_])) {
      // The crate that instantiated it.
      ++silent_;
      Path(false);
      --silent_;
    }
    if (failed_) return "";
    const absl::string_view suffix = text_.substr(at_);
    if (!suffix.empty() && suffix[0] != '.' && suffix[0] != '$') return "";
    return absl::StrCat(out_, suffix);
  }

 private:
  struct Identifier {
    uint64_t disambiguator = 0;
    absl::string_view text;
    bool punycode = false;
  };

  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char Next() {
    if (at_ >= text_.size()) {
      failed_ = true;
      return '\0';
    }
    return text_[at_++];
  }
  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  void Print(absl::string_view text) {
    if (silent_ > 0) return;
    out_.append(text.data(), text.size());
    if (out_.size() > kMaxPlainBytes) failed_ = true;
  }

  // "_" is 0, "0_" is 1, ...
  uint64_t Base62() {
    if (Take('_')) return 0;
    uint64_t value = 0;
    while (!failed_ && !Take('_')) {
      const char c = Next();
      uint64_t digit = 0;
      if (absl::ascii_isdigit(c)) {
        digit = c - '0';
      } else if (absl::ascii_islower(c)) {
        digit = 10 + (c - 'a');
      } else if (absl::ascii_isupper(c)) {
        digit = 36 + (c - 'A');
      } else {
        failed_ = true;
      }
      if (value > (~uint64_t{0} - digit) / 62) failed_ = true;
      value = value * 62 + digit;
    }
    return value + 1;
  }
  // With a tag in front, or 0 without it.
  uint64_t OptionalBase62(char tag) { return Take(tag) ? Base62() + 1 : 0; }

  Identifier ReadIdentifier() {
    Identifier identifier;
    identifier.disambiguator = OptionalBase62('s');
    identifier.punycode = Take('u');
    size_t size = 0;
    if (!absl::ascii_isdigit(Peek())) failed_ = true;
    if (!Take('0')) {
      while (absl::ascii_isdigit(Peek()) && size < kMaxMangledBytes) size = size * 10 + (Next() - '0');
    }
    Take('_');
    if (size > text_.size() - at_) {
      failed_ = true;
      return identifier;
    }
    identifier.text = text_.substr(at_, size);
    at_ += size;
    return identifier;
  }

  void PrintIdentifier(const Identifier& identifier) {
    if (!identifier.punycode) return Print(identifier.text);
    // RFC 3492, with '_' for '-'.
    std::u32string decoded;
    absl::string_view digits = identifier.text;
    const size_t split = digits.rfind('_');
    if (split != absl::string_view::npos) {
      decoded.assign(digits.begin(), digits.begin() + split);
      digits.remove_prefix(split + 1);
    }
    uint64_t n = 0x80, i = 0, bias = 72, damp = 700;
    while (!digits.empty() && !failed_) {
      const uint64_t before = i;
      uint64_t weight = 1;
      for (uint64_t k = 36;; k += 36) {
        if (digits.empty()) {
          failed_ = true;
          return;
        }
        const char c = digits[0];
        digits.remove_prefix(1);
        uint64_t digit = 0;
        if (absl::ascii_islower(c)) {
          digit = c - 'a';
        } else if (absl::ascii_isdigit(c)) {
          digit = 26 + (c - '0');
        } else {
          failed_ = true;
          return;
        }
        i += digit * weight;
        const uint64_t threshold = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
        if (digit < threshold) break;
        weight *= 36 - threshold;
        if (weight > uint64_t{1} << 32 || i > uint64_t{1} << 32) {
          failed_ = true;
          return;
        }
      }
      const uint64_t size = decoded.size() + 1;
      uint64_t delta = (i - before) / damp;
      damp = 2;
      delta += delta / size;
      uint64_t k = 0;
      while (delta > 455) {
        delta /= 35;
        k += 36;
      }
      bias = k + 36 * delta / (delta + 38);
      n += i / size;
      i %= size;
      if (n > 0x10ffff || (n >= 0xd800 && n < 0xe000)) {
        failed_ = true;
        return;
      }
      decoded.insert(decoded.begin() + i, static_cast<char32_t>(n));
      ++i;
    }
    std::string utf8;
    for (char32_t c : decoded) AppendUtf8(&utf8, c);
    Print(utf8);
  }

  // Calls `parse` at the place a back reference leads to.
  template <typename Parse>
  void BackReference(Parse parse) {
    const size_t tag_at = at_ - 1;
    const uint64_t target = Base62();
    if (failed_ || target >= tag_at || silent_ > 0) {
      failed_ |= target >= tag_at;
      return;
    }
    const size_t back = at_;
    at_ = target;
    parse();
    at_ = back;
  }

  void Path(bool in_value) {
    if (failed_ || ++depth_ > kMaxDepth) {
      failed_ = true;
      return;
    }
    switch (const char tag = Next()) {
      case 'C':
        PrintIdentifier(ReadIdentifier());
        break;
      case 'N': {
        const char space = Next();
        Path(in_value);
        const Identifier identifier = ReadIdentifier();
        if (absl::ascii_isupper(space)) {
          Print("::{");
          Print(space == 'C' ? "closure" : space == 'S' ? "shim" : absl::string_view(&space, 1));
          if (!identifier.text.empty()) {
            Print(":");
            PrintIdentifier(identifier);
          }
          Print(absl::StrCat("#", identifier.disambiguator, "}"));
        } else if (absl::ascii_islower(space)) {
          if (!identifier.text.empty()) {
            Print("::");
            PrintIdentifier(identifier);
          }
        } else {
          failed_ = true;
        }
        break;
      }
      case 'M':
      case 'X':
        OptionalBase62('s');
        ++silent_;
        Path(false);  // the module the impl is in
        --silent_;
        [[fallthrough]];
      case 'Y':
        Print("<");
        Type();
        if (tag != 'M') {
          Print(" as ");
          Path(false);
        }
        Print(">");
        break;
      case 'I':
        Path(in_value);
        if (in_value) Print("::");
        Print("<");
        List(", ", [this] { GenericArgument(); });
        Print(">");
        break;
      case 'B':
        BackReference([this, in_value] { Path(in_value); });
        break;
      default:
        failed_ = true;
    }
    --depth_;
  }

  template <typename Parse>
  size_t List(absl::string_view separator, Parse parse) {
    size_t count = 0;
    while (!failed_ && !Take('E')) {
      if (count++ > 0) Print(separator);
      parse();
    }
    return count;
  }

  void GenericArgument() {
    if (Take('L')) {
      Lifetime(Base62());
    } else if (Take('K')) {
      Const();
    } else {
      Type();
    }
  }

  void Lifetime(uint64_t index) {
    Print("'");
    if (index == 0) return Print("_");
    if (index > bound_lifetimes_) {
      failed_ = true;
      return;
    }
    const uint64_t depth = bound_lifetimes_ - index;
    if (depth < 26) {
      const char letter = static_cast<char>('a' + depth);
      Print(absl::string_view(&letter, 1));
    } else {
      Print(absl::StrCat("_", depth));
    }
  }

  // "for<'a, 'b> " and what it binds over.
  template <typename Parse>
  void Binder(Parse parse) {
    const uint64_t before = bound_lifetimes_;
    const uint64_t bound = OptionalBase62('G');
    if (bound > 64) failed_ = true;  // real signatures have a few
    if (bound > 0 && !failed_) {
      Print("for<");
      for (uint64_t i = 0; i < bound; ++i) {
        if (i > 0) Print(", ");
        ++bound_lifetimes_;
        Lifetime(1);
      }
      Print("> ");
    }
    parse();
    bound_lifetimes_ = before;
  }

  static absl::string_view BasicType(char tag) {
    switch (tag) {
      case 'a':
        return "i8";
      case 'b':
        return "bool";
      case 'c':
        return "char";
      case 'd':
        return "f64";
      case 'e':
        return "str";
      case 'f':
        return "f32";
      case 'h':
        return "u8";
      case 'i':
        return "isize";
      case 'j':
        return "usize";
      case 'l':
        return "i32";
      case 'm':
        return "u32";
      case 'n':
        return "i128";
      case 'o':
        return "u128";
      case 'p':
        return "_";
      case 's':
        return "i16";
      case 't':
        return "u16";
      case 'u':
        return "()";
      case 'v':
        return "...";
      case 'x':
        return "i64";
      case 'y':
        return "u64";
      case 'z':
        return "!";
      default:
        return {};
    }
  }

  void Type() {
    if (failed_ || ++depth_ > kMaxDepth) {
      failed_ = true;
      return;
    }
    const char tag = Next();
    const absl::string_view basic = BasicType(tag);
    if (!basic.empty()) {
      Print(basic);
      --depth_;
      return;
    }
    switch (tag) {
      case 'R':
      case 'Q':
        Print("&");
        if (Take('L')) {
          const uint64_t lifetime = Base62();
          if (lifetime != 0) {
            Lifetime(lifetime);
            Print(" ");
          }
        }
        if (tag == 'Q') Print("mut ");
        Type();
        break;
      case 'P':
        Print("*const ");
        Type();
        break;
      case 'O':
        Print("*mut ");
        Type();
        break;
      case 'A':
      case 'S':
        Print("[");
        Type();
        if (tag == 'A') {
          Print("; ");
          Const();
        }
        Print("]");
        break;
      case 'T': {
        Print("(");
        const size_t count = List(", ", [this] { Type(); });
        Print(count == 1 ? ",)" : ")");
        break;
      }
      case 'F':
        Binder([this] { FunctionSignature(); });
        break;
      case 'D':
        Print("dyn ");
        Binder([this] { List(" + ", [this] { DynTrait(); }); });
        if (!Take('L')) {
          failed_ = true;
        } else if (const uint64_t lifetime = Base62(); lifetime != 0) {
          Print(" + ");
          Lifetime(lifetime);
        }
        break;
      case 'B':
        BackReference([this] { Type(); });
        break;
      default:
        --at_;
        Path(false);
    }
    --depth_;
  }

  void FunctionSignature() {
    if (Take('U')) Print("unsafe ");
    if (Take('K')) {
      Print("extern \"");
      if (Take('C')) {
        Print("C");
      } else {
        std::string abi(ReadIdentifier().text);
        for (char& c : abi) {
          if (c == '_') c = '-';
        }
        Print(abi);
      }
      Print("\" ");
    }
    Print("fn(");
    List(", ", [this] { Type(); });
    Print(")");
    if (Take('u')) return;
    Print(" -> ");
    Type();
  }

  // A path whose generic arguments stay open for associated types: `Iterator<Item = u8>`.
  bool OpenPath() {
    if (Take('B')) {
      bool open = false;
      BackReference([this, &open] { open = OpenPath(); });
      return open;
    }
    if (!Take('I')) {
      Path(false);
      return false;
    }
    Path(false);
    Print("<");
    List(", ", [this] { GenericArgument(); });
    return true;
  }

  void DynTrait() {
    if (++depth_ > kMaxDepth) failed_ = true;
    bool open = OpenPath();
    while (!failed_ && Take('p')) {
      Print(open ? ", " : "<");
      open = true;
      PrintIdentifier(ReadIdentifier());
      Print(" = ");
      Type();
    }
    if (open) Print(">");
    --depth_;
  }

  absl::string_view HexDigits() {
    const size_t start = at_;
    while (absl::ascii_isdigit(Peek()) || (Peek() >= 'a' && Peek() <= 'f')) ++at_;
    const absl::string_view digits = text_.substr(start, at_ - start);
    if (!Take('_')) failed_ = true;
    return digits;
  }

  void Const() {
    if (failed_ || ++depth_ > kMaxDepth) {
      failed_ = true;
      return;
    }
    const char tag = Next();
    uint64_t value = 0;
    switch (tag) {
      case 'B':
        BackReference([this] { Const(); });
        break;
      case 'p':
        Print("_");
        break;
      case 'a':
      case 's':
      case 'l':
      case 'x':
      case 'n':
      case 'i':
        if (Take('n')) Print("-");
        [[fallthrough]];
      case 'h':
      case 't':
      case 'm':
      case 'y':
      case 'o':
      case 'j': {
        const absl::string_view digits = HexDigits();
        if (digits.empty()) {
          Print("0");
        } else if (digits.size() <= 16 && absl::SimpleHexAtoi(digits, &value)) {
          Print(absl::StrCat(value));
        } else {
          Print("0x");
          Print(digits);
        }
        break;
      }
      case 'b': {
        const absl::string_view digits = HexDigits();
        if (digits == "0" || digits == "1") {
          Print(digits == "1" ? "true" : "false");
        } else {
          failed_ = true;
        }
        break;
      }
      case 'c': {
        if (!absl::SimpleHexAtoi(HexDigits(), &value) || value > 0x10ffff ||
            (value >= 0xd800 && value < 0xe000)) {
          failed_ = true;
          break;
        }
        std::string character = "'";
        if (value < 0x20 || value == 0x7f) {
          absl::StrAppend(&character, "\\u{", absl::Hex(value), "}");
        } else {
          if (value == '\'' || value == '\\') character.push_back('\\');
          AppendUtf8(&character, static_cast<uint32_t>(value));
        }
        Print(character + "'");
        break;
      }
      default:
        failed_ = true;  // values of structures and strings: on no stable compiler
    }
    --depth_;
  }

  absl::string_view text_;  // after "_R"
  size_t at_ = 0;
  std::string out_;
  int silent_ = 0;  // what is parsed is not printed
  int depth_ = 0;
  uint64_t bound_lifetimes_ = 0;
  bool failed_ = false;
};

}  // namespace

std::string DemangleRust(absl::string_view name) {
  if (name.size() > kMaxMangledBytes) return "";
  if (absl::StartsWith(name, "_ZN")) return DemangleLegacy(name);
  absl::string_view rest = WithoutLlvmSuffix(name);
  if (!absl::ConsumePrefix(&rest, "_R")) return "";
  return V0Demangler(rest).Run();
}

}  // namespace xenprof::symbols
