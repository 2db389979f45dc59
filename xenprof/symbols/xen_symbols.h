// Names of Xen's functions, from the best source there is for the very Xen that runs (or ran).
#ifndef XENPROF_SYMBOLS_XEN_SYMBOLS_H_
#define XENPROF_SYMBOLS_XEN_SYMBOLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "xenprof/symbols/dwarf_index.h"
#include "xenprof/symbols/function_cache.h"
#include "xenprof/symbols/symbolizer.h"
#include "xenprof/symbols/xen_sources.h"

namespace xenprof::symbols {

struct XenSymbolsOptions {
  XenSearchOptions search;
  bool lines = true;      // inline frames and lines, where an ELF file of the right build has DWARF
  std::string index_dir;  // where indexes of DWARF are kept between runs; empty: nowhere
};

// What `doctor` tells about Xen's symbols.
struct XenSymbolsInfo {
  bool available = false;
  std::string source;             // the table in use
  uint64_t symbols = 0;           // functions in it
  std::string build_id;           // raw; of the Xen asked for, empty when unknown
  bool build_id_matches = false;  // the source is known to be of this build
  std::string lines_source;       // ELF file with DWARF of this build, empty when there is none
  std::string problem;            // why there is none, and what was passed over
};

class XenSymbols {
 public:
  explicit XenSymbols(XenSymbolsOptions options) : options_(std::move(options)) {}

  // Absolute addresses. The build id of `mapping`, when it has one, is the one that counts.
  Resolved Resolve(const MappingInfo& mapping, absl::Span<const uint64_t> addresses);

  // Of the running Xen, or of `build_id` (raw) when given.
  XenSymbolsInfo Info(const std::string& build_id = "");

  // [start, end) of the functions in which only an idle CPU is, ascending.
  std::vector<std::pair<uint64_t, uint64_t>> IdleRanges(const std::string& build_id = "");

 private:
  using Source = XenSymbolSource;

  Source Find(const std::string& build_id, std::string* problem) const;
  // Names for `missing` into the cache.
  void Search(const Source& source, absl::Span<const uint64_t> missing, std::string* problem);
  // Calls `visit` for each function of the source; returns what went wrong, or empty.
  std::string ForEachFunction(
      const Source& source, const std::function<void(uint64_t address, absl::string_view name)>& visit) const;

  // `names_elf`: the ELF file that names were just taken from, or null.
  void AddLines(const std::string& build_id, const std::shared_ptr<const ElfFile>& names_elf,
                absl::Span<const uint64_t> addresses, Resolved* resolved);

  XenSymbolsOptions options_;
  FunctionCache cache_;
  std::unique_ptr<DwarfIndex> index_;  // only where there is no folder to keep it in
  std::string no_lines_for_;           // build id for which there is no DWARF
  bool looked_for_lines_ = false;
  std::string cache_of_;  // build id that the cache is for
  std::string source_name_;
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_XEN_SYMBOLS_H_
