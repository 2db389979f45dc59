// Whether PMU interrupts reach the dom0 vCPU that runs on the CPU they belong to.
#ifndef XENPROF_XEN_PINNING_H_
#define XENPROF_XEN_PINNING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace xenprof::xen {

struct PinningReport {
  bool right = false;
  bool fixable_now = false;           // as many vCPUs as needed are there: xl vcpu-pin is enough
  std::string found;                  // a sentence
  std::vector<std::string> commands;  // `xl vcpu-pin` lines that mend it until the next boot
};

// Xen sends the PMU interrupt of physical CPU c to dom0 vCPU c % max_vcpus (xen/arch/x86/cpu/vpmu.c,
// choose_hwdom_vcpu). Right if and only if, for each online CPU c, the hard affinity of that vCPU is exactly
// {c}. `online_cpus` ascending; `affinity` per dom0 vCPU, see Hypervisor::HardAffinity.
PinningReport CheckPinning(absl::Span<const uint32_t> online_cpus,
                           absl::Span<const std::vector<uint32_t>> affinity);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_PINNING_H_
