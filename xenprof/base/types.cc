#include "xenprof/base/types.h"

namespace xenprof {

absl::string_view OriginName(Origin origin) {
  switch (origin) {
    case Origin::kUnknown: return "unknown";
    case Origin::kDom0User: return "dom0_user";
    case Origin::kDom0Kernel: return "dom0_kernel";
    case Origin::kXenForDom0: return "xen_for_dom0";
    case Origin::kXenIdle: return "xen_idle";
    case Origin::kXenForGuest: return "xen_for_guest";
    case Origin::kGuestKernel: return "guest_kernel";
    case Origin::kGuestUser: return "guest_user";
  }
  return "unknown";
}

absl::string_view FrameKindName(FrameKind kind) {
  switch (kind) {
    case FrameKind::kUnknown: return "unknown";
    case FrameKind::kHypervisor: return "hypervisor";
    case FrameKind::kDom0Kernel: return "dom0_kernel";
    case FrameKind::kDom0User: return "dom0_user";
    case FrameKind::kGuestKernel: return "guest_kernel";
    case FrameKind::kGuestUser: return "guest_user";
  }
  return "unknown";
}

absl::string_view ModeName(ModeKind mode) {
  switch (mode) {
    case ModeKind::kUnspecified: return "unspecified";
    case ModeKind::kXenStacks: return "xen stacks";
    case ModeKind::kXenLeafOnly: return "xen leaf only";
    case ModeKind::kDom0Only: return "dom0 only";
    case ModeKind::kPlainLinux: return "plain linux";
  }
  return "unspecified";
}

absl::string_view ModeBlindSpot(ModeKind mode) {
  switch (mode) {
    case ModeKind::kUnspecified: return "It is not known what these samples could see.";
    case ModeKind::kXenStacks: return "";
    case ModeKind::kXenLeafOnly:
      return "Of Xen only the function that ran is seen, not what called it, nor for whom it ran unless it was dom0.";
    case ModeKind::kDom0Only:
      return "A software clock sees only dom0: time in Xen and in guests is missing from this profile.";
    case ModeKind::kPlainLinux: return "There is no Xen below this kernel: the profile shows this kernel only.";
  }
  return "";
}

}  // namespace xenprof
