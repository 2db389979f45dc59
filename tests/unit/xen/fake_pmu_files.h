// A kernel and a Xen behind /sys/hypervisor/pmu, by the rules of xen/arch/x86/cpu/vpmu.c and
// drivers/xen/sys-hypervisor.c: the kernel matches as many bytes of a mode's name as were written; Xen checks
// unknown feature bits before busy guests.
#ifndef TESTS_UNIT_XEN_FAKE_PMU_FILES_H_
#define TESTS_UNIT_XEN_FAKE_PMU_FILES_H_

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "xenprof/xen/vpmu_files.h"

namespace xenprof::xen {

class FakePmuFiles : public PmuFiles {
 public:
  PmuMode mode = PmuMode::kSelf;
  uint64_t features = 0;
  uint64_t known_features = 0xf;  // 0x7: no hypervisor stacks
  bool enabled = true;            // vpmu=on and nothing in its way
  bool guest_holds_vpmu = false;
  int read_error = 0;  // whatever else goes wrong
  int mode_write_error = 0;
  int features_write_error = 0;
  std::vector<std::string> writes;  // "mode=all\n"
  std::function<void()> before_write;

  ReadResult Read(PmuFile file) override {
    if (read_error != 0) return {read_error, ""};
    if (!enabled) return {EOPNOTSUPP, ""};
    if (file == PmuFile::kMode) return {0, std::string(PmuModeName(mode)) + "\n"};
    return {0, absl::StrFormat("0x%x\n", features)};
  }

  int Write(PmuFile file, absl::string_view bytes) override {
    if (before_write) before_write();
    writes.push_back((file == PmuFile::kMode ? "mode=" : "features=") + std::string(bytes));
    return file == PmuFile::kMode ? WriteMode(bytes) : WriteFeatures(bytes);
  }

 private:
  int WriteMode(absl::string_view bytes) {
    if (mode_write_error != 0) return mode_write_error;
    // strncmp(buf, name, len - 1)
    const size_t compared = bytes.size() - 1;
    for (PmuMode candidate : {PmuMode::kOff, PmuMode::kSelf, PmuMode::kHv, PmuMode::kAll}) {
      const absl::string_view name = PmuModeName(candidate);
      if (bytes.substr(0, compared) != name.substr(0, compared)) continue;
      if (!enabled) return EOPNOTSUPP;
      const auto shares = [](PmuMode m) { return m == PmuMode::kSelf || m == PmuMode::kHv; };
      if (candidate != mode && guest_holds_vpmu && !(shares(candidate) && shares(mode))) return EBUSY;
      mode = candidate;
      return 0;
    }
    return EINVAL;
  }

  int WriteFeatures(absl::string_view bytes) {
    if (features_write_error != 0) return features_write_error;
    const uint64_t value = std::strtoull(std::string(bytes).c_str(), nullptr, 0);
    if (!enabled) return EOPNOTSUPP;
    if ((value & ~known_features) != 0) return EINVAL;
    if (guest_holds_vpmu && value != features) return EBUSY;
    features = value;
    return 0;
  }
};

}  // namespace xenprof::xen

#endif  // TESTS_UNIT_XEN_FAKE_PMU_FILES_H_
