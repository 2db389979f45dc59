// CRC-32C (Castagnoli, RFC 3720 appendix B.4: polynomial 0x1EDC6F41, reflected, initial value and final xor
// ~0).
#ifndef XENPROF_CHUNK_CRC32C_H_
#define XENPROF_CHUNK_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace xenprof::chunk {

// Of `bytes` bytes at `data`. By the CPU's instruction (SSE4.2) where it has one.
uint32_t Crc32c(const void* data, size_t bytes);

// The two ways, apart, for tests. The first may only be called where HasCrc32cInstruction().
bool HasCrc32cInstruction();
uint32_t Crc32cByInstruction(const void* data, size_t bytes);
uint32_t Crc32cByTable(const void* data, size_t bytes);

}  // namespace xenprof::chunk

#endif  // XENPROF_CHUNK_CRC32C_H_
