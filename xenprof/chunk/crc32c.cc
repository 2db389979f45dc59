#include "xenprof/chunk/crc32c.h"

#include <array>
#include <cstring>

namespace xenprof::chunk {
namespace {

constexpr uint32_t kReflectedPolynomial = 0x82f63b78;

// tables[k][b]: the remainder of byte b followed by k zero bytes, so that eight bytes are folded in one step.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReflectedPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t previous = tables[k - 1][byte];
      tables[k][byte] = (previous >> 8) ^ tables[0][previous & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

uint32_t Crc32cByTable(const void* data, size_t bytes) {
  const auto* at = static_cast<const uint8_t*>(data);
  uint32_t crc = ~0u;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    // Byte by byte: right on any byte order.
    crc = kTables[7][(crc ^ at[0]) & 0xff] ^ kTables[6][((crc >> 8) ^ at[1]) & 0xff] ^
          kTables[5][((crc >> 16) ^ at[2]) & 0xff] ^ kTables[4][((crc >> 24) ^ at[3]) & 0xff] ^
          kTables[3][at[4]] ^ kTables[2][at[5]] ^ kTables[1][at[6]] ^ kTables[0][at[7]];
  }
  for (; bytes > 0; --bytes, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xff];
  return ~crc;
}

#if defined(__x86_64__)

bool HasCrc32cInstruction() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

__attribute__((target("sse4.2"))) uint32_t Crc32cByInstruction(const void* data, size_t bytes) {
  const auto* at = static_cast<const uint8_t*>(data);
  uint64_t crc = ~0u;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    crc = __builtin_ia32_crc32di(crc, word);
  }
  uint32_t rest = static_cast<uint32_t>(crc);
  for (; bytes > 0; --bytes, ++at) rest = __builtin_ia32_crc32qi(rest, *at);
  return ~rest;
}

#else

bool HasCrc32cInstruction() { return false; }
uint32_t Crc32cByInstruction(const void* data, size_t bytes) { return Crc32cByTable(data, bytes); }

#endif

uint32_t Crc32c(const void* data, size_t bytes) {
  return HasCrc32cInstruction() ? Crc32cByInstruction(data, bytes) : Crc32cByTable(data, bytes);
}

}  // namespace xenprof::chunk
