#include "xenprof/symbols/rust_v0.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "xenprof/symbols/rust_text.h"

namespace xenprof::symbols {
namespace {

constexpr size_t kMaxPlainBytes = 64 << 10;
constexpr int kMaxDepth = 300;

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
      while (absl::ascii_isdigit(Peek()) && size < kMaxRustMangledBytes) size = size * 10 + (Next() - '0');
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
    std::string plain;
    if (!DecodeRustPunycode(identifier.text, &plain)) failed_ = true;
    Print(plain);
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

std::string DemangleRustV0(absl::string_view text) { return V0Demangler(text).Run(); }

}  // namespace xenprof::symbols
