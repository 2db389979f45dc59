// Turns the PMU of a Xen host on for dom0, as far as the host can, and puts it back.
//
// "Old" values are those to put back. They are on disk (vpmu_saved.h) before the first write and until
// everything is as it was, so these hold after any crash:
//   - the saved file exists exactly while something differs from the old values because of us;
//   - a file found at start is from a run that died: its values stay the old ones, whatever is set now;
//   - a file of an earlier boot is dropped: Xen starts from its command line.
// What xenprofd-vpmu-boot.service sets is not recorded: with it the administrator chose mode `all` for this
// boot, so that is "old" for the daemon, which finds nothing to change and puts nothing back.
#ifndef XENPROF_XEN_VPMU_H_
#define XENPROF_XEN_VPMU_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "xenprof/xen/vpmu_decision.h"
#include "xenprof/xen/vpmu_files.h"
#include "xenprof/xen/vpmu_saved.h"

namespace xenprof::xen {

struct VpmuRequest {
  // The most that may be asked of Xen. kAll takes the PMU away from guests (even from those started later,
  // for as long as they live), kHv leaves it to them. kOff: change nothing, use what is set.
  PmuMode max_mode = PmuMode::kAll;
  PmuHostFacts host;
};

struct VpmuNote {
  bool warning = false;
  std::string text;  // a sentence or more: cause and remedy
};

// What dom0 has now.
struct VpmuOutcome {
  bool usable = false;  // mode is not off, or vpmu=global
  std::string name;     // "all", "hv", "self", "global", or "" when not usable: Mode.vpmu in chunk.proto
  PmuMode mode = PmuMode::kOff;
  uint64_t features = 0;
  bool hv_stacks = false;          // bit 3 is set: Xen delivers its stacks
  bool hv_stacks_unknown = false;  // vpmu=global: only samples will tell
  PmuCause cause = PmuCause::kAny;
  std::string no_pmu_reason;     // set when not usable: why, and the remedy
  std::string no_stacks_reason;  // set when usable without hv_stacks: why, and the remedy
  std::vector<VpmuNote> notes;
};

struct VpmuOptions {
  std::string sysfs_root = "/sys";
  std::string proc_root = "/proc";
  std::string state_dir = "/var/lib/xenprofd";
};

class VpmuControl {
 public:
  explicit VpmuControl(const VpmuOptions& options);
  // `files` instead of sysfs; it outlives this object.
  VpmuControl(const VpmuOptions& options, PmuFiles* files);

  // Saves, then sets features (old | 8; no other bit ever changes), then the best mode Xen grants: all, else
  // hv, else self, up to request.max_mode and never a lesser one than is set already. Never fails: what could
  // not be had is in the notes. Nothing is written when the old values could not be saved first. Before
  // opening events.
  VpmuOutcome Enable(const VpmuRequest& request);

  // Mode, then features, as saved; forgets them once both are in force. After closing all events. OK when
  // nothing was changed. Notes say what Xen refused; then the values stay saved.
  absl::StatusOr<std::vector<VpmuNote>> Restore(const PmuHostFacts& host = {});

 private:
  const VpmuOptions options_;
  std::unique_ptr<PmuFiles> own_files_;
  PmuFiles* const files_;
  VpmuStore store_;
};

// `xenprofd --restore-vpmu`, for ExecStopPost=: what Restore() would have done, had the daemon lived. The
// text says what was done. FailedPrecondition: a daemon is running and holds the vPMU. Other errors: the
// values stay saved.
absl::StatusOr<std::string> RestoreSaved(const VpmuOptions& options, PmuFiles* files = nullptr);

// `xenprofd --vpmu-boot`, before guests start: as Enable, but nothing is saved, since nothing is to be put
// back.
VpmuOutcome EnableAtBoot(const VpmuOptions& options, const VpmuRequest& request, PmuFiles* files = nullptr);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_VPMU_H_
