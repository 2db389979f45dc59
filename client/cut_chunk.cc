#include "client/cut_chunk.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/output_file.h"
#include "xenprof/chunk/extract.h"

namespace xenprof::client {
namespace {

// Removes a chunk on its way, and what a failed writer left of it.
class TemporaryChunk {
 public:
  explicit TemporaryChunk(std::string path) : path_(std::move(path)) {}
  ~TemporaryChunk() {
    unlink(path_.c_str());
    unlink(absl::StrCat(path_, ".partial").c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

absl::Status CopyTo(const std::string& from, const std::string& to) {
  absl::StatusOr<std::unique_ptr<OutputFile>> output = OutputFile::Create(to);
  if (!output.ok()) return output.status();
  std::ifstream file(from, std::ios::binary);
  char buffer[1 << 16];
  while (file.read(buffer, sizeof(buffer)) || file.gcount() > 0) {
    absl::Status written = (*output)->Write({buffer, static_cast<size_t>(file.gcount())});
    if (!written.ok()) return written;
  }
  if (!file.eof()) return absl::DataLossError(absl::StrCat(from, ": cannot be read back"));
  return (*output)->Commit();
}

}  // namespace

absl::Status CutChunk(std::vector<profile::Input> inputs, const profile::TimeWindow& window, bool salvage,
                      const std::string& path) {
  const chunk::ReadOptions options = {.salvage = salvage};
  const size_t given = inputs.size();
  absl::StatusOr<profile::Selection> selection = profile::SelectChunks(std::move(inputs), window, options);
  if (!selection.ok()) return selection.status();
  if (selection->chunks.empty()) {
    return absl::NotFoundError(absl::StrCat("none of the ", given, " chunks covers any of the window"));
  }
  uint64_t start_ns = std::numeric_limits<uint64_t>::max(), end_ns = 0;
  std::vector<std::unique_ptr<chunk::ChunkReader>> readers;
  for (profile::SelectedChunk& chunk : selection->chunks) {
    start_ns = std::min(start_ns, chunk.wanted.intervals().front().start);
    end_ns = std::max(end_ns, chunk.wanted.intervals().back().end);
    if (chunk.reader == nullptr) {
      absl::StatusOr<std::unique_ptr<chunk::ChunkReader>> opened =
          chunk::ChunkReader::Open(chunk.path, options);
      if (!opened.ok()) return opened.status();
      chunk.reader = *std::move(opened);
    }
    readers.push_back(std::move(chunk.reader));
  }
  const bool to_stdout = path == "-";
  const char* folder = std::getenv("TMPDIR");
  const std::string place =
      to_stdout ? absl::StrCat(folder != nullptr && *folder != '\0' ? folder : "/tmp", "/xenprof") : path;
  const TemporaryChunk temporary(absl::StrCat(place, ".", getpid(), ".cut"));
  // The rename below is what counts, and nothing is lost that could not be cut again.
  const absl::StatusOr<chunk::ExtractReport> report =
      chunk::Extract(std::move(readers), start_ns, end_ns, temporary.path(), {.sync = false});
  if (!report.ok()) return report.status();
  if (to_stdout) return CopyTo(temporary.path(), path);
  if (rename(temporary.path().c_str(), path.c_str()) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace xenprof::client
