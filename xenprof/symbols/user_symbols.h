// Names of functions in programs, libraries, the vdso and generated code.
#ifndef XENPROF_SYMBOLS_USER_SYMBOLS_H_
#define XENPROF_SYMBOLS_USER_SYMBOLS_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "xenprof/symbols/elf_file.h"
#include "xenprof/symbols/file_access.h"
#include "xenprof/symbols/function_cache.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::symbols {

struct UserSymbolsOptions {
  std::string root;                       // folder that stands for "/"
  bool live = true;                       // the processes sampled are those of this machine now
  std::vector<std::string> symbol_roots;  // folders with copies of the sampled file system, or debug files
  std::vector<std::string> debug_dirs;    // as /usr/lib/debug; below `root` and below each symbol root
  uint64_t max_decompressed_bytes = 32 << 20;  // of one .gnu_debugdata
  size_t max_kept_files = 256;
  absl::Duration max_kept_age = absl::Minutes(20);
  size_t max_cached_bytes = 2 << 20;
};

class UserSymbols {
 public:
  explicit UserSymbols(UserSymbolsOptions options);

  void Note(const MappingInfo& mapping) { keeper_.Note(mapping); }  // thread-safe

  Resolved ResolveFile(const MappingInfo& mapping, absl::Span<const uint64_t> addresses);
  Resolved ResolveVdso(const MappingInfo& mapping, absl::Span<const uint64_t> addresses);
  Resolved ResolveGenerated(const MappingInfo& mapping, absl::Span<const uint64_t> addresses);

  size_t cached_bytes() const;
  size_t kept_files() const { return keeper_.size(); }

 private:
  struct Cached {
    std::string key;
    FunctionCache functions{1 << 20};
    std::string source;
    std::string problem;
  };
  struct Program {
    std::shared_ptr<const ElfFile> elf;
    std::shared_ptr<const ElfFile> debug;
    std::string where;
    std::string problem;
  };

  Cached& CacheOf(const std::string& key);
  void TrimCache();
  Program OpenProgram(const MappingInfo& mapping);
  // Fills `cached` with names for `missing`, offsets in the file.
  void Search(const Program& program, absl::Span<const uint64_t> missing, Cached& cached);
  Resolved FromCache(Cached& cached, absl::Span<const uint64_t> addresses);

  UserSymbolsOptions options_;
  FileKeeper keeper_;
  std::list<Cached> caches_;  // most recently used first
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_USER_SYMBOLS_H_
