// The symbolizer of a machine: this one as it runs, or a copy of another one's files.
#ifndef XENPROF_SYMBOLS_LIVE_SYMBOLIZER_H_
#define XENPROF_SYMBOLS_LIVE_SYMBOLIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "xenprof/symbols/kernel_symbols.h"
#include "xenprof/symbols/symbolizer.h"
#include "xenprof/symbols/user_symbols.h"
#include "xenprof/symbols/xen_symbols.h"

namespace xenprof::symbols {

struct LiveSymbolizerOptions {
  // Stands for "/" in every path below that starts with one, /proc and /sys included: a fake tree in tests.
  std::string root;

  // True: names are asked for on the machine and in the boot that was sampled, while its processes may still
  // live (the daemon). False: the samples are from somewhere or some time else (`import`), so nothing of this
  // machine is used unless a build id proves it to be the same.
  bool live = true;

  std::string kallsyms_path;  // a saved table instead of /proc/kallsyms; .xz and .gz are read too
  std::string xensyms_path;   // instead of /proc/xen/xensyms
  std::vector<std::string>
      xen_symbol_files;                   // xensyms- or nm-style texts, xen-syms ELF files; .xz and .gz too
  std::string xen_build_id;               // raw bytes, of the Xen sampled; empty: as sysfs tells when `live`
  std::vector<std::string> symbol_roots;  // folders with copies of the sampled machine's files
  std::vector<std::string> debug_dirs = {"/usr/lib/debug"};

  // Inline frames and lines of Xen where an xen-syms with DWARF of the right build is found. Reading it the
  // first time is slow (all of its DWARF); with `index_dir` that happens once per build of Xen. Without it,
  // the index is held in memory (a few MB), so that a daemon wants either a folder or no lines.
  bool xen_lines = true;
  std::string index_dir;  // must exist and belong to this user

  // Bounds of memory and descriptors.
  uint64_t max_minidebuginfo_bytes = 32 << 20;  // decompressed, one file at a time, only while it is searched
  uint64_t max_xen_file_bytes = 512 << 20;      // of a compressed xen-syms, decompressed
  size_t max_cached_user_bytes = 2 << 20;       // functions of programs kept for the next time
  size_t max_kept_files = 256;                  // open files of mappings that were noted
  absl::Duration max_kept_age = absl::Minutes(20);
};

// Thread-safe. Keeps nothing mapped or open after Resolve but the files that Note got hold of.
class LiveSymbolizer : public Symbolizer {
 public:
  explicit LiveSymbolizer(LiveSymbolizerOptions options);

  void Note(const MappingInfo& mapping) override;
  Resolved Resolve(const MappingInfo& mapping, absl::Span<const uint64_t> addresses) override;

  // A kernel module or BPF program came or went (PERF_RECORD_KSYMBOL, a new kernel mapping).
  void KernelSymbolsChanged();

  // Where Xen's names come from, for `doctor` and `status`.
  XenSymbolsInfo XenInfo();

  // [start, end) of Xen's functions that only an idle CPU is in, ascending; empty without symbols. Constant
  // for as long as this Xen runs.
  std::vector<std::pair<uint64_t, uint64_t>> XenIdleRanges();

 private:
  absl::Mutex mutex_;
  KernelSymbols kernel_ ABSL_GUARDED_BY(mutex_);
  XenSymbols xen_ ABSL_GUARDED_BY(mutex_);
  UserSymbols user_;  // Note locks by itself; the rest under mutex_
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_LIVE_SYMBOLIZER_H_
