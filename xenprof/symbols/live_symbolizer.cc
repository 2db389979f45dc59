#include "xenprof/symbols/live_symbolizer.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace xenprof::symbols {
namespace {

XenSymbolsOptions XenOptions(const LiveSymbolizerOptions& options) {
  return {.search = {.root = options.root,
                     .live = options.live,
                     .files = options.xen_symbol_files,
                     .xensyms_path = options.xensyms_path,
                     .build_id = options.xen_build_id,
                     .symbol_roots = options.symbol_roots,
                     .debug_dirs = options.debug_dirs,
                     .max_decompressed_bytes = options.max_xen_file_bytes},
          .lines = options.xen_lines,
          .index_dir = options.index_dir};
}

UserSymbolsOptions UserOptions(const LiveSymbolizerOptions& options) {
  return {.root = options.root,
          .live = options.live,
          .symbol_roots = options.symbol_roots,
          .debug_dirs = options.debug_dirs,
          .max_decompressed_bytes = options.max_minidebuginfo_bytes,
          .max_kept_files = options.max_kept_files,
          .max_kept_age = options.max_kept_age,
          .max_cached_bytes = options.max_cached_user_bytes};
}

}  // namespace

LiveSymbolizer::LiveSymbolizer(LiveSymbolizerOptions options)
    : kernel_({.root = options.root, .kallsyms_path = options.kallsyms_path, .live = options.live}),
      xen_(XenOptions(options)),
      user_(UserOptions(options)) {}

void LiveSymbolizer::Note(const MappingInfo& mapping) {
  if (mapping.kind == FrameKind::kDom0User) user_.Note(mapping);
}

Resolved LiveSymbolizer::Resolve(const MappingInfo& mapping, absl::Span<const uint64_t> addresses) {
  Resolved resolved;
  if (addresses.empty()) return resolved;
  absl::MutexLock lock(&mutex_);
  switch (mapping.kind) {
    case FrameKind::kHypervisor:
      return xen_.Resolve(mapping, addresses);
    case FrameKind::kDom0Kernel:
      return kernel_.Resolve(mapping, addresses);
    case FrameKind::kGuestKernel:
    case FrameKind::kGuestUser:
      resolved.problem = "symbols of guests are not known here";
      return resolved;
    case FrameKind::kDom0User:
    case FrameKind::kUnknown:
      break;
  }
  if (mapping.name == "[vdso]") return user_.ResolveVdso(mapping, addresses);
  if (mapping.is_file) return user_.ResolveFile(mapping, addresses);
  if (mapping.pid != 0) return user_.ResolveGenerated(mapping, addresses);
  resolved.problem = mapping.name.empty() ? "no mapping is known at these addresses"
                                          : absl::StrCat(mapping.name, " is no file that could have symbols");
  return resolved;
}

void LiveSymbolizer::KernelSymbolsChanged() {
  absl::MutexLock lock(&mutex_);
  kernel_.Changed();
}

XenSymbolsInfo LiveSymbolizer::XenInfo() {
  absl::MutexLock lock(&mutex_);
  return xen_.Info();
}

std::vector<std::pair<uint64_t, uint64_t>> LiveSymbolizer::XenIdleRanges() {
  absl::MutexLock lock(&mutex_);
  return xen_.IdleRanges();
}

}  // namespace xenprof::symbols
