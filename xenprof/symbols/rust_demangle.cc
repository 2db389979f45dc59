#include "xenprof/symbols/demangle.h"

namespace xenprof::symbols {
std::string DemangleRust(absl::string_view) { return ""; }
}  // namespace xenprof::symbols
