// The two files of /sys/hypervisor/pmu, as the rest of the room sees them: small enough that a test can be
// the kernel.
#ifndef XENPROF_XEN_VPMU_FILES_H_
#define XENPROF_XEN_VPMU_FILES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace xenprof::xen {

// Values of pmu_mode (xen/include/public/pmu.h: XENPMU_MODE_*), from least to most.
enum class PmuMode : uint8_t {
  kOff = 0,
  kSelf = 1,  // each domain its own vPMU
  kHv = 2,    // self, and dom0 also sees Xen working on its behalf
  kAll = 3,   // dom0 sees the whole machine, guests have no vPMU
};

// Bits of pmu_features (xen/include/public/pmu.h: XENPMU_FEATURE_*). Bit 3 exists only with the
// hypervisor-stack series.
inline constexpr uint64_t kPmuFeatureIntelBts = 1 << 0;
inline constexpr uint64_t kPmuFeatureIpcOnly = 1 << 1;
inline constexpr uint64_t kPmuFeatureArchOnly = 1 << 2;
inline constexpr uint64_t kPmuFeatureHvStacktrace = 1 << 3;

// "off", "self", "hv", "all".
absl::string_view PmuModeName(PmuMode mode);
// The reverse, exact; nullopt for anything else.
std::optional<PmuMode> ParsePmuMode(absl::string_view name);

enum class PmuFile { kMode, kFeatures };

class PmuFiles {
 public:
  struct ReadResult {
    int error = 0;  // errno, 0 when `text` is what the file holds
    std::string text;
  };

  virtual ~PmuFiles() = default;
  virtual ReadResult Read(PmuFile file) = 0;
  // Hands all of `bytes` to the kernel in a single write(2): it takes a value from the first bytes of each
  // call, so a value in two pieces would be two values. Returns 0 or errno (EIO when fewer bytes were taken).
  virtual int Write(PmuFile file, absl::string_view bytes) = 0;
};

class SysfsPmuFiles : public PmuFiles {
 public:
  // `sysfs_root` is where sysfs is mounted.
  explicit SysfsPmuFiles(std::string sysfs_root = "/sys") : sysfs_root_(std::move(sysfs_root)) {}
  ReadResult Read(PmuFile file) override;
  int Write(PmuFile file, absl::string_view bytes) override;

 private:
  std::string Path(PmuFile file) const;
  std::string sysfs_root_;
};

// Typed access over PmuFiles. Errors are errno; a value that makes no sense is EPROTO.
int ReadPmuMode(PmuFiles& files, PmuMode* mode);
int ReadPmuFeatures(PmuFiles& files, uint64_t* features);
// Writes exactly "name\n": the kernel compares only as many bytes as it is given, so a short write selects
// `off`.
int WritePmuMode(PmuFiles& files, PmuMode mode);
// Writes "0x%x\n".
int WritePmuFeatures(PmuFiles& files, uint64_t features);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_VPMU_FILES_H_
