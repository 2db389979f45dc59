// What steady collection does with ring images, names apart: drain, decode, merge, intern, encode, write.
#ifndef XENPROF_TESTS_BENCH_HOT_PATH_H_
#define XENPROF_TESTS_BENCH_HOT_PATH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "synthetic.h"
#include "xenprof/chunk/writer.h"
#include "xenprof/merge/assembler.h"
#include "xenprof/merge/batch.h"
#include "xenprof/merge/window.h"

namespace xenprof::bench {

inline constexpr size_t kHandOnSamples = 2048;  // as the daemon's readers do

class HotPath {
 public:
  // Writes `path`, which is replaced.
  HotPath(RingImages* images, std::string path);
  ~HotPath();

  // A new file, and no table of the run before. Not part of what is measured. What a daemon keeps from block
  // to block is kept from run to run: the readers' memory, the window's and the writer's.
  absl::Status Prepare(const proto::Header& header = {});
  // The samples in `blocks` blocks of equal time.
  absl::Status Run(int blocks = 1);

  chunk::ChunkWriter& writer() { return *writer_; }
  const merge::Tables& tables() const { return assembler_->tables(); }

 private:
  RingImages* const images_;
  const std::string path_;
  const std::shared_ptr<chunk::WriterMemory> writer_memory_ = chunk::NewWriterMemory();
  std::unique_ptr<chunk::ChunkWriter> writer_;
  std::unique_ptr<merge::Assembler> assembler_;
  std::vector<std::unique_ptr<merge::BatchBuilder>> builders_;  // of each ring
  merge::Window window_;
};

// A folder that is gone with this object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace xenprof::bench

#endif  // XENPROF_TESTS_BENCH_HOT_PATH_H_
