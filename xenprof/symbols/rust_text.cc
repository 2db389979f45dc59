#include "xenprof/symbols/rust_text.h"

#include "absl/strings/ascii.h"

namespace xenprof::symbols {

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

bool DecodeRustPunycode(absl::string_view digits, std::string* utf8) {
  constexpr size_t kMaxDigits = 4096;  // each insertion moves what is behind it
  if (digits.size() > kMaxDigits) return false;
  std::u32string decoded;
  const size_t split = digits.rfind('_');
  if (split != absl::string_view::npos) {
    for (char c : digits.substr(0, split)) decoded.push_back(static_cast<unsigned char>(c));
    digits.remove_prefix(split + 1);
  }
  uint64_t n = 0x80, i = 0, bias = 72, damp = 700;
  while (!digits.empty()) {
    const uint64_t before = i;
    uint64_t weight = 1;
    for (uint64_t k = 36;; k += 36) {
      if (digits.empty()) {
        return false;
      }
      const char c = digits[0];
      digits.remove_prefix(1);
      uint64_t digit = 0;
      if (absl::ascii_islower(c)) {
        digit = c - 'a';
      } else if (absl::ascii_isdigit(c)) {
        digit = 26 + (c - '0');
      } else {
        return false;
      }
      i += digit * weight;
      const uint64_t threshold = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
      if (digit < threshold) break;
      weight *= 36 - threshold;
      if (weight > uint64_t{1} << 32 || i > uint64_t{1} << 32) {
        return false;
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
      return false;
    }
    decoded.insert(decoded.begin() + i, static_cast<char32_t>(n));
    ++i;
  }
  for (char32_t c : decoded) AppendUtf8(utf8, c);
  return true;
}

}  // namespace xenprof::symbols
