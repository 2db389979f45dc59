// Names for addresses: asked by whoever seals a chunk or shows one.
#ifndef XENPROF_SYMBOLS_SYMBOLIZER_H_
#define XENPROF_SYMBOLS_SYMBOLIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "xenprof/base/types.h"

namespace xenprof::symbols {

// One mapping of a chunk, as symbols see it. Addresses asked for are file offsets when `is_file`, else
// virtual ones.
struct MappingInfo {
  FrameKind kind = FrameKind::kUnknown;
  std::string name;      // path, "[kernel]", "[module]", "[xen]", "[vdso]", "//anon", ...
  std::string build_id;  // raw bytes
  bool is_file = false;
  bool deleted = false;
  uint32_t pid = 0;             // of a private mapping ("//anon")
  std::vector<uint32_t> pids;   // some processes that mapped it: a way in to other mount namespaces
  uint64_t start = 0, end = 0;  // of a mapping that is no file
};

struct Function {
  uint64_t start = 0;
  uint64_t size = 0;  // 0: up to the next function
  std::string name;   // demangled; empty: only its bounds are known
};

// Inline frames and source lines of one address, innermost first.
struct Lines {
  uint64_t address = 0;
  struct Entry {
    std::string function;
    std::string file;
    uint32_t line = 0;
  };
  std::vector<Entry> entries;
};

struct Resolved {
  std::vector<Function> functions;  // ascending; only those that hold an address asked for
  std::vector<Lines> lines;         // ascending; only where debug information gives them
  std::string source;               // what the names came from
  std::string problem;              // for people: why names are missing or doubtful
};

class Symbolizer {
 public:
  virtual ~Symbolizer() = default;

  // `mapping` has just been sampled for the first time: the moment to get hold of a file that may be gone, or
  // in another mount namespace, when its names are asked for. Cheap; may be called from another thread than
  // Resolve.
  virtual void Note(const MappingInfo& mapping) = 0;

  // Names for `addresses` (ascending, each once; callers have already taken 1 off return addresses). Never
  // fails: what cannot be named is left out, or in a function without a name, and `problem` says why.
  virtual Resolved Resolve(const MappingInfo& mapping, absl::Span<const uint64_t> addresses) = 0;
};

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_SYMBOLIZER_H_
