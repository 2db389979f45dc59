#include "hot_path.h"

#include <stdlib.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xenprof::bench {

HotPath::HotPath(RingImages* images, std::string path) : images_(images), path_(std::move(path)) {
  for (size_t ring = 0; ring < images->rings(); ++ring) {
    builders_.push_back(
        std::make_unique<merge::BatchBuilder>(static_cast<uint32_t>(ring), images->options()));
  }
}
HotPath::~HotPath() = default;

absl::Status HotPath::Prepare(const proto::Header& header) {
  writer_.reset();
  std::filesystem::remove(path_);
  std::filesystem::remove(path_ + ".partial");
  chunk::WriterOptions options;
  options.sync = false;
  options.memory = writer_memory_;
  auto writer = chunk::ChunkWriter::Create(path_, header, options);
  if (!writer.ok()) return writer.status();
  writer_ = std::move(*writer);
  assembler_ = std::make_unique<merge::Assembler>();
  images_->Describe(assembler_.get());
  return absl::OkStatus();
}

absl::Status HotPath::Run(int blocks) {
  const perf::RecordLayout layout = images_->layout();
  for (size_t ring = 0; ring < images_->rings(); ++ring) {
    merge::BatchBuilder& builder = *builders_[ring];
    images_->Reader(ring).Drain([&](absl::Span<const uint8_t> record) {
      builder.AddRecord(record, layout);
      if (builder.samples() >= kHandOnSamples)
        assembler_->AddBatch(builder.Take(0, assembler_->TakeRecycled()));
    });
    assembler_->AddBatch(builder.Take(images_->end_ns()));
  }
  window_.Clear();
  window_.start_ns = images_->first_ns();
  const uint64_t step_ns = (images_->end_ns() - images_->first_ns()) / blocks;
  size_t samples = 0;
  for (int block = 1; block <= blocks; ++block) {
    const uint64_t until_ns = block == blocks ? images_->end_ns() : images_->first_ns() + block * step_ns;
    assembler_->Advance(until_ns, &window_);
    samples += window_.samples();
    if (absl::Status status = writer_->WriteBlock(window_, assembler_->tables(), 0); !status.ok())
      return status;
    window_.Clear();
    window_.start_ns = until_ns;
  }
  if (samples != static_cast<size_t>(images_->samples())) {
    return absl::InternalError(absl::StrCat(samples, " samples of ", images_->samples(), " arrived"));
  }
  return absl::OkStatus();
}

TemporaryFolder::TemporaryFolder() {
  path_ = std::filesystem::temp_directory_path() / "xenprof-bench.XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) abort();
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace xenprof::bench
