// The vPMU's old values on disk, so that they come back whatever happens to the daemon.
//
// <state dir>/vpmu-saved, at most 256 bytes of text, exactly these lines:
//   xenprof-vpmu 1
//   boot_id 0a1b2c3d-....   /proc/sys/kernel/random/boot_id of the boot they belong to
//   mode self               off, self, hv or all
//   features 0x0
//   end
#ifndef XENPROF_XEN_VPMU_SAVED_H_
#define XENPROF_XEN_VPMU_SAVED_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xenprof/xen/vpmu_files.h"

namespace xenprof::xen {

struct SavedVpmu {
  std::string boot_id;
  PmuMode mode = PmuMode::kOff;
  uint64_t features = 0;
};

std::string FormatSavedVpmu(const SavedVpmu& saved);
// InvalidArgument naming the line that is wrong.
absl::StatusOr<SavedVpmu> ParseSavedVpmu(absl::string_view text);

class VpmuStore {
 public:
  explicit VpmuStore(std::string state_dir) : state_dir_(std::move(state_dir)) {}
  ~VpmuStore();
  VpmuStore(const VpmuStore&) = delete;
  VpmuStore& operator=(const VpmuStore&) = delete;

  // Keeps every other process from changing the vPMU through this state directory until this object goes. The
  // kernel drops the lock of a process that dies. FailedPrecondition: another process has it.
  absl::Status Lock();

  // nullopt: nothing is saved. InvalidArgument: there is a file, but it is not acted on (wrong owner, mode,
  // type or contents); it has been renamed to vpmu-saved.refused, out of the way of the next start.
  absl::StatusOr<std::optional<SavedVpmu>> Load();
  // On disk when this returns OK: written beside, fsynced, renamed, directory fsynced.
  absl::Status Save(const SavedVpmu& saved);
  // Durable as well. OK when there is none.
  absl::Status Remove();

  std::string path() const;

 private:
  absl::Status SyncDirectory() const;
  const std::string state_dir_;
  int lock_fd_ = -1;
};

// Boot id of the running kernel. `proc_root` is where procfs is mounted.
absl::StatusOr<std::string> ReadBootId(const std::string& proc_root = "/proc");

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_VPMU_SAVED_H_
