// Names of kernel and module functions out of /proc/kallsyms, read once and kept small until it changes.
#ifndef XENPROF_SYMBOLS_KERNEL_SYMBOLS_H_
#define XENPROF_SYMBOLS_KERNEL_SYMBOLS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "xenprof/symbols/function_cache.h"
#include "xenprof/symbols/symbol_table.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::symbols {

struct KernelSymbolsOptions {
  std::string root;           // folder that stands for "/"
  std::string kallsyms_path;  // a saved table (may be .xz or .gz); empty: /proc/kallsyms below `root`
  // The kernel sampled is the one running now, in this boot. Otherwise /proc/kallsyms is used only for a
  // kernel of the same build id.
  bool live = true;
};

class KernelSymbols {
 public:
  explicit KernelSymbols(KernelSymbolsOptions options) : options_(std::move(options)) {}

  // `mapping` is "[kernel]" (whatever the address lies in) or "[module]".
  Resolved Resolve(const MappingInfo& mapping, absl::Span<const uint64_t> addresses);

  // A module or a BPF program came or went.
  void Changed() {
    cache_.ForgetGroups();
    table_ = nullptr;
  }

 private:
  // Why the table must not be used for `mapping`, or empty.
  std::string Refusal(const MappingInfo& mapping, std::string* doubt) const;
  // Reads the kernel's table into table_. Returns what went wrong, or empty.
  std::string Load();
  // Looks for `missing` in the table and keeps what it finds. Returns what went wrong, or empty.
  std::string Search(const MappingInfo& mapping, absl::Span<const uint64_t> missing);
  uint32_t GroupOfModule(absl::string_view module);

  KernelSymbolsOptions options_;
  FunctionCache cache_;
  std::unique_ptr<SymbolTable> table_;       // null: not read, or out of date
  std::vector<std::string> modules_ = {""};  // by group
  uint64_t text_start_ = 0;                  // _text or _stext of the table last read
};

// The NT_GNU_BUILD_ID descriptor in a sequence of ELF notes (/sys/kernel/notes, .note.gnu.build-id), or "".
std::string BuildIdOfNotes(absl::string_view notes, size_t alignment = 4);

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_KERNEL_SYMBOLS_H_
