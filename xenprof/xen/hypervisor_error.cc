#include "xenprof/xen/hypervisor_error.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace xenprof::xen {

absl::Status XenCallError(XenCallKind kind, absl::string_view call, int error) {
  const std::string because = absl::StrCat(" (", call, ": ", strerror(error), ")");
  if (kind == XenCallKind::kOpen) {
    switch (error) {
      case EACCES:
      case EPERM:
        return absl::PermissionDeniedError(absl::StrCat("only root may talk to Xen", because));
      case ENOENT:
      case ENODEV:
      case ENXIO:
        return absl::UnavailableError(absl::StrCat(
            "there is no /dev/xen/privcmd: not on Xen, or the xen_privcmd module is not loaded", because));
      default:
        return absl::UnavailableError(absl::StrCat("cannot open Xen's control interface", because));
    }
  }
  switch (error) {
    case EACCES:
      if (kind != XenCallKind::kControl) break;
      return absl::FailedPreconditionError(absl::StrCat(
          "libxenctrl does not match this Xen: Xen refuses its interface version", because,
          "; install the libxenctrl of the running Xen, or reboot into the Xen that was installed with it"));
    case EPERM:
      return absl::PermissionDeniedError(absl::StrCat(
          "Xen does not let this domain ask: it is not dom0, or an XSM policy forbids it", because));
    case ENOSYS:
    case EOPNOTSUPP:
      return absl::UnimplementedError(absl::StrCat("this Xen has no such call", because));
    case ESRCH:
    case ENOENT:
      return absl::NotFoundError(absl::StrCat("no such domain, vCPU or entry", because));
    case ENOMEM:
    case EAGAIN:
    case EBUSY:
      return absl::UnavailableError(absl::StrCat("Xen could not answer just now", because));
    default:
      break;
  }
  return absl::UnknownError(absl::StrCat("Xen refused", because));
}

}  // namespace xenprof::xen
