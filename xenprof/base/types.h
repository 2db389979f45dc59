// The words every room of xenprof shares. Values equal those of proto/chunk.proto.
#ifndef XENPROF_BASE_TYPES_H_
#define XENPROF_BASE_TYPES_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace xenprof {

enum class FrameKind : uint8_t {
  kUnknown = 0,
  kHypervisor = 1,
  kDom0Kernel = 2,
  kDom0User = 3,
  kGuestKernel = 4,
  kGuestUser = 5,
};

// Whose time a sample was.
enum class Origin : uint8_t {
  kUnknown = 0,
  kDom0User = 1,
  kDom0Kernel = 2,
  kXenForDom0 = 3,
  kXenIdle = 4,
  kXenForGuest = 5,
  kGuestKernel = 6,
  kGuestUser = 7,
};
inline constexpr int kOriginCount = 8;

// Bits; see StackFlag in chunk.proto.
enum StackFlags : uint8_t {
  kStackComplete = 0,
  kStackTruncated = 1,
  kStackNoUserCallers = 2,
  kStackGuessedOrigin = 4,
};

// What samples can show at all; see Mode in chunk.proto.
enum class ModeKind : uint8_t {
  kUnspecified = 0,
  kXenStacks = 1,
  kXenLeafOnly = 2,
  kDom0Only = 3,
  kPlainLinux = 4,
};

// "dom0_user", "xen_for_guest", ...
absl::string_view OriginName(Origin origin);
// "hypervisor", "dom0_kernel", ...
absl::string_view FrameKindName(FrameKind kind);
// "xen stacks", "xen leaf only", "dom0 only", "plain linux".
absl::string_view ModeName(ModeKind mode);
// One sentence: what a profile of this mode cannot show. Empty when there is nothing.
absl::string_view ModeBlindSpot(ModeKind mode);

// Xen's part of the address space, the same for Xen 4.6 to 4.22 (xen/include/asm-x86/config.h:
// HYPERVISOR_VIRT_START/END). A PV kernel never maps it.
inline constexpr uint64_t kHypervisorStart = 0xffff800000000000;
inline constexpr uint64_t kHypervisorEnd = 0xffff880000000000;
inline constexpr bool IsHypervisorAddress(uint64_t address) {
  return address - kHypervisorStart < kHypervisorEnd - kHypervisorStart;
}
// Canonical lower half: user space on x86-64.
inline constexpr uint64_t kUserAddressEnd = 0x0000800000000000;
inline constexpr bool IsUserAddress(uint64_t address) { return address < kUserAddressEnd; }
inline constexpr uint64_t kPageBytes = 4096;

}  // namespace xenprof

#endif  // XENPROF_BASE_TYPES_H_
