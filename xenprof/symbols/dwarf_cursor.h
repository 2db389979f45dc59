// Reads little-endian bytes and DWARF's variable-length numbers without ever leaving its range.
#ifndef XENPROF_SYMBOLS_DWARF_CURSOR_H_
#define XENPROF_SYMBOLS_DWARF_CURSOR_H_

#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace xenprof::symbols {

// After a read past the end `bad()` stays true and every read gives 0.
class DwarfCursor {
 public:
  DwarfCursor() = default;
  explicit DwarfCursor(absl::string_view bytes)
      : begin_(reinterpret_cast<const uint8_t*>(bytes.data())), at_(begin_), end_(begin_ + bytes.size()) {}

  bool bad() const { return bad_; }
  bool AtEnd() const { return at_ >= end_; }
  uint64_t offset() const { return at_ - begin_; }
  uint64_t left() const { return end_ - at_; }

  void Seek(uint64_t offset) {
    if (offset > static_cast<uint64_t>(end_ - begin_)) return Fail();
    at_ = begin_ + offset;
  }
  void Skip(uint64_t size) {
    if (size > left()) return Fail();
    at_ += size;
  }

  uint8_t U8() { return Fixed<uint8_t>(); }
  uint16_t U16() { return Fixed<uint16_t>(); }
  uint32_t U24() {
    const uint32_t low = U16();
    return low | uint32_t{U8()} << 16;
  }
  uint32_t U32() { return Fixed<uint32_t>(); }
  uint64_t U64() { return Fixed<uint64_t>(); }
  // 1, 2, 3, 4 or 8 bytes.
  uint64_t Sized(unsigned size) {
    switch (size) {
      case 1:
        return U8();
      case 2:
        return U16();
      case 3:
        return U24();
      case 4:
        return U32();
      case 8:
        return U64();
      default:
        Fail();
        return 0;
    }
  }

  uint64_t Uleb() {
    if (at_ < end_ && *at_ < 0x80) return *at_++;
    return LongUleb();
  }
  int64_t Sleb() {
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte = 0x80;
    while ((byte & 0x80) != 0) {
      if (at_ >= end_) {
        Fail();
        return 0;
      }
      byte = *at_++;
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      shift += 7;
    }
    if (shift < 64 && (byte & 0x40) != 0) value |= ~uint64_t{0} << shift;
    return static_cast<int64_t>(value);
  }
  void SkipLeb() {
    while (at_ < end_) {
      if ((*at_++ & 0x80) == 0) return;
    }
    Fail();
  }

  // A zero-terminated string, without the zero.
  absl::string_view CString() {
    const void* zero = std::memchr(at_, '\0', left());
    if (zero == nullptr) {
      Fail();
      return {};
    }
    const absl::string_view text(reinterpret_cast<const char*>(at_), static_cast<const uint8_t*>(zero) - at_);
    at_ += text.size() + 1;
    return text;
  }
  absl::string_view Bytes(uint64_t size) {
    if (size > left()) {
      Fail();
      return {};
    }
    const absl::string_view bytes(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return bytes;
  }

 private:
  void Fail() {
    bad_ = true;
    at_ = end_;
  }
  template <typename T>
  T Fixed() {
    if (left() < sizeof(T)) {
      Fail();
      return 0;
    }
    T value;
    std::memcpy(&value, at_, sizeof(value));
    at_ += sizeof(value);
    return value;
  }
  uint64_t LongUleb() {
    uint64_t value = 0;
    unsigned shift = 0;
    while (at_ < end_) {
      const uint8_t byte = *at_++;
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return value;
      shift += 7;
    }
    Fail();
    return 0;
  }

  const uint8_t* begin_ = nullptr;
  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
  bool bad_ = false;
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_DWARF_CURSOR_H_
