// Faithful words for libxenctrl's errno.
#ifndef XENPROF_XEN_HYPERVISOR_ERROR_H_
#define XENPROF_XEN_HYPERVISOR_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace xenprof::xen {

enum class XenCallKind {
  kOpen,     // opening /dev/xen/privcmd
  kVersion,  // xen_version hypercall: no interface version to match
  kControl,  // sysctl or domctl: Xen answers EACCES to an interface version that is not its own
  kOther,
};

// `call` is the function's name, `error` its errno.
absl::Status XenCallError(XenCallKind kind, absl::string_view call, int error);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_HYPERVISOR_ERROR_H_
