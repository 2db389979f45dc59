#include "xenprof/symbols/perf_map.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "xenprof/symbols/byte_stream.h"
#include "xenprof/symbols/demangle.h"

namespace xenprof::symbols {
namespace {

constexpr uint64_t kMaxMapBytes = 512 << 20;
constexpr size_t kMaxMapNameBytes = 1024;
// A line holding more addresses than this many times all of them over the whole file is no real map.
constexpr uint64_t kMaxNamesPerAddress = 4096;

}  // namespace

PerfMapNames FindPerfMapNames(UniqueFd fd, const std::string& name, absl::Span<const uint64_t> addresses) {
  PerfMapNames names;
  names.found.resize(addresses.size());
  absl::StatusOr<std::unique_ptr<ByteStream>> stream = StreamOfFd(std::move(fd), kMaxMapBytes, name);
  if (!stream.ok()) {
    names.problem = std::string(stream.status().message());
    return names;
  }
  LineReader reader(stream->get());
  absl::string_view line;
  uint64_t bad_lines = 0, updates = 0;
  while (reader.Next(&line)) {
    const size_t first = line.find(' ');
    const size_t second = first == absl::string_view::npos ? first : line.find(' ', first + 1);
    uint64_t start = 0, size = 0;
    if (second == absl::string_view::npos || second + 1 >= line.size() ||
        !absl::SimpleHexAtoi(line.substr(0, first), &start) ||
        !absl::SimpleHexAtoi(line.substr(first + 1, second - first - 1), &size) || start + size < start) {
      if (!line.empty()) ++bad_lines;
      continue;
    }
    size_t i = std::lower_bound(addresses.begin(), addresses.end(), start) - addresses.begin();
    for (; i < addresses.size() && addresses[i] < start + size; ++i) {
      if (++updates > kMaxNamesPerAddress * addresses.size()) {
        names.problem = absl::StrCat(name, ": its functions overlap beyond reason, given up");
        return names;
      }
      names.found[i] = {
          .start = start, .end = start + size, .name = std::string(line.substr(second + 1, kMaxMapNameBytes))};
    }
  }
  for (FunctionCache::Found& found : names.found) found.name = Demangle(found.name);
  if (!reader.status().ok()) {
    names.problem = std::string(reader.status().message());
  } else if (bad_lines > 0) {
    names.problem = absl::StrCat(name, ": ", bad_lines, " lines are not of the form START SIZE NAME");
  }
  return names;
}

}  // namespace xenprof::symbols
