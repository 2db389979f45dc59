// Xen through libxenctrl, libxenstore and, where there is one, libxenhypfs. Only the module is made of this.
#ifndef XENPROF_XEN_XENCTRL_HYPERVISOR_H_
#define XENPROF_XEN_XENCTRL_HYPERVISOR_H_

extern "C" {
#include <xenctrl.h>
#include <xenstore.h>
}

#include <memory>
#include <string>
#include <vector>

#include "xenprof/xen/hypervisor.h"

namespace xenprof::xen {

class XenctrlHypervisor : public Hypervisor {
 public:
  static absl::StatusOr<std::unique_ptr<XenctrlHypervisor>> Open();
  ~XenctrlHypervisor() override;

  absl::StatusOr<std::string> Version() override;
  absl::StatusOr<std::string> Changeset() override;
  absl::StatusOr<std::string> BuildId() override;
  absl::StatusOr<std::string> CommandLine() override;
  absl::StatusOr<std::string> Capabilities() override;
  absl::StatusOr<std::string> Compiler() override;
  absl::StatusOr<std::vector<CpuTopology>> Topology() override;
  absl::StatusOr<PhysicalInfo> Physical() override;
  absl::StatusOr<std::vector<DomainInfo>> Domains() override;
  absl::StatusOr<std::vector<std::vector<uint32_t>>> HardAffinity(uint32_t domid) override;
  absl::StatusOr<std::vector<Livepatch>> Livepatches() override;
  absl::StatusOr<std::string> ConsoleRing() override;
  absl::StatusOr<std::string> BuildConfig() override;
  absl::StatusOr<int> DomainWatchFd() override;
  absl::StatusOr<bool> TakeDomainEvents() override;

 private:
  struct Logger;  // keeps libxenctrl from writing to stderr

  XenctrlHypervisor();
  // Connects when it is not connected; Unavailable when xenstored does not listen.
  absl::Status ConnectXenstore();
  std::string DomainName(uint32_t domid);

  std::unique_ptr<Logger> logger_;
  xc_interface* xc_ = nullptr;
  struct xs_handle* xenstore_ = nullptr;
  bool watching_ = false;
};

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_XENCTRL_HYPERVISOR_H_
