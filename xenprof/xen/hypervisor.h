// What Xen tells dom0 about itself, behind an interface: the real thing needs libxenctrl, which has to match
// the running Xen and may be missing. Its implementation is a module loaded at run time (xenprof-xenctrl.so),
// so that a libxenctrl that is missing or does not match costs these facts and nothing else.
#ifndef XENPROF_XEN_HYPERVISOR_H_
#define XENPROF_XEN_HYPERVISOR_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace xenprof::xen {

struct CpuTopology {
  uint32_t cpu = 0;
  uint32_t core = 0;
  uint32_t socket = 0;
  uint32_t node = 0;
};

struct PhysicalInfo {
  uint32_t max_cpu_id = 0;
  uint32_t online_cpus = 0;
  uint32_t nodes = 0;
  uint32_t cpu_khz = 0;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
};

struct DomainInfo {
  uint32_t domid = 0;
  std::array<uint8_t, 16> uuid{};
  std::string name;    // empty when xenstore has none or cannot be asked
  uint32_t vcpus = 0;  // online
  uint32_t max_vcpu_id = 0;
  bool running = false;  // a vCPU of it is on a CPU right now
  bool paused = false;
  bool dying = false;
  bool hvm = false;          // HVM or PVH
  uint64_t cpu_time_ns = 0;  // of all its vCPUs since it was made
};

struct Livepatch {
  std::string name;
  std::string state;  // "checked", "applied"
};

// Every call asks anew. Errors:
//   FailedPrecondition  libxenctrl does not match this Xen (sysctl or domctl interface version refused)
//   PermissionDenied    not root, or Xen does not let this domain ask
//   Unimplemented       this libxenctrl or this Xen has no such call
//   NotFound            no such domain or vCPU
//   Unavailable         xenstored or a device file cannot be reached
// Not for several threads at once.
class Hypervisor {
 public:
  virtual ~Hypervisor() = default;

  virtual absl::StatusOr<std::string> Version() = 0;    // "4.17.5"
  virtual absl::StatusOr<std::string> Changeset() = 0;  // as Xen words it, often a date and a git id
  virtual absl::StatusOr<std::string> BuildId() = 0;    // raw bytes
  virtual absl::StatusOr<std::string> CommandLine() = 0;
  virtual absl::StatusOr<std::string> Capabilities() = 0;  // "xen-3.0-x86_64 hvm-3.0-x86_32 ..."
  virtual absl::StatusOr<std::string> Compiler() = 0;

  virtual absl::StatusOr<std::vector<CpuTopology>> Topology() = 0;  // online CPUs, ascending
  virtual absl::StatusOr<PhysicalInfo> Physical() = 0;
  virtual absl::StatusOr<std::vector<DomainInfo>> Domains() = 0;  // ascending domid
  // Per vCPU of the domain, from 0 to its max_vcpu_id: the physical CPUs it may run on, ascending.
  virtual absl::StatusOr<std::vector<std::vector<uint32_t>>> HardAffinity(uint32_t domid) = 0;
  virtual absl::StatusOr<std::vector<Livepatch>> Livepatches() = 0;
  // What is left of Xen's log in its ring. Reading does not clear it.
  virtual absl::StatusOr<std::string> ConsoleRing() = 0;
  // The .config Xen was built with, from hypfs (Xen 4.14 and later, CONFIG_HYPFS_CONFIG).
  virtual absl::StatusOr<std::string> BuildConfig() = 0;

  // A descriptor that becomes readable when a domain comes or goes. The same one every time.
  virtual absl::StatusOr<int> DomainWatchFd() = 0;
  // Takes what has come in; true when domains may have changed. Does not block.
  virtual absl::StatusOr<bool> TakeDomainEvents() = 0;
};

struct OpenOptions {
  // Where the module is looked for first; "" skips. Then $XENPROF_MODULE_DIR, the folder of the running
  // program, the folder it was installed into.
  std::string module_dir;
};

// The running Xen through libxenctrl and libxenstore. Unavailable: no module, or libxenctrl is missing or of
// another version than the module was built with; the message is for people and says which. Also the errors
// above.
absl::StatusOr<std::unique_ptr<Hypervisor>> OpenHypervisor(const OpenOptions& options = {});

// -- between this library and the module
// ------------------------------------------------------------------------------

// Raised with every change of the classes above.
inline constexpr uint32_t kHypervisorModuleAbi = 1;
inline constexpr char kHypervisorModuleFile[] = "xenprof-xenctrl.so";
inline constexpr char kHypervisorModuleFactory[] = "xenprof_open_xenctrl";
// Returns nullptr and fills `status` when it cannot open Xen, or when `abi` is not its own.
using HypervisorModuleFactory = Hypervisor* (*)(uint32_t abi, absl::Status* status);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_HYPERVISOR_H_
