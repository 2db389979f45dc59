#include "client/import_mode.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace xenprof::client {
namespace {

// Of arch/x86/xen and drivers/xen: called by a kernel on Xen only. (That a kernel has them says nothing, most
// do.)
bool RunsOnXenOnly(const std::string& function) {
  return absl::StartsWith(function, "xen_hypercall_") || function == "hypercall_page" ||
         absl::StrContains(function, "xen_pv_evtchn_do_upcall") ||
         function == "exc_xen_hypervisor_callback" || function == "xen_hvm_callback_vector" ||
         function == "sysvec_xen_hvm_callback" || function == "xen_evtchn_do_upcall" ||
         function == "__evtchn_fifo_handle_events";
}

// Why the host ran Xen, or empty. Forms "..., as TEXT shows".
std::string EvidenceOfXen(const ImportScan& scan, const EventScan& event, bool xen_symbols_given,
                          symbols::Symbolizer* symbolizer) {
  if (!scan.xen_thread.empty()) return absl::StrCat("its kernel thread ", scan.xen_thread);
  if (event.hypervisor_samples == 0 && symbolizer != nullptr && !event.kernel_addresses.empty()) {
    symbols::MappingInfo kernel;
    kernel.kind = FrameKind::kDom0Kernel;
    kernel.name = "[kernel]";
    kernel.build_id = scan.kernel_build_id;
    std::vector<uint64_t> addresses(event.kernel_addresses.begin(), event.kernel_addresses.end());
    std::sort(addresses.begin(), addresses.end());
    for (const symbols::Function& function : symbolizer->Resolve(kernel, addresses).functions) {
      if (RunsOnXenOnly(function.name)) return absl::StrCat("its sampled kernel function ", function.name);
    }
  }
  if (xen_symbols_given) return "the symbols of Xen given with it";
  return "";
}

}  // namespace

ImportMode FindImportMode(const ImportScan& scan, size_t event_index, const perf::PerfEvent& event,
                          bool xen_symbols_given, symbols::Symbolizer* symbolizer) {
  const EventScan& seen = scan.events[event_index];
  if (seen.caller_samples > 0) {
    return {ModeKind::kXenStacks, absl::StrCat(seen.caller_samples, " of ", seen.hypervisor_samples,
                                               " samples in Xen have callers in Xen")};
  }
  if (seen.hypervisor_samples > 0) {
    return {ModeKind::kXenLeafOnly,
            absl::StrCat("none of ", seen.hypervisor_samples, " samples in Xen has a caller in Xen")};
  }
  const std::string evidence = EvidenceOfXen(scan, seen, xen_symbols_given, symbolizer);
  if (evidence.empty()) {
    return {ModeKind::kPlainLinux, "no sample lies in Xen, and nothing recorded tells of Xen"};
  }
  if (event.is_software_clock()) {
    return {ModeKind::kDom0Only, absl::StrCat(event.plain_name(),
                                              " is a timer of the kernel that sampled, and that ran on "
                                              "Xen, as ",
                                              evidence, " shows")};
  }
  return {ModeKind::kDom0Only,
          absl::StrCat("no sample lies in Xen, although the kernel ran on it, as ", evidence, " shows")};
}

}  // namespace xenprof::client
