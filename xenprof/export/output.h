// Where exporters write to.
#ifndef XENPROF_EXPORT_OUTPUT_H_
#define XENPROF_EXPORT_OUTPUT_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace xenprof::exporter {

class Output {
 public:
  virtual ~Output() = default;
  // All of `bytes`, or an error; after one, nothing further is written.
  virtual absl::Status Write(absl::string_view bytes) = 0;
};

class StringOutput : public Output {
 public:
  absl::Status Write(absl::string_view bytes) override {
    text_.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Collects small pieces into large writes. The first error is kept and told by Flush.
class BufferedOutput {
 public:
  explicit BufferedOutput(Output* output) : output_(output) { Grow(kFlushBytes); }
  // Where to write up to `bytes`; Advance says how many were written.
  char* Room(size_t bytes) {
    if (capacity_ - used_ < bytes) {
      WriteOut();
      if (capacity_ < bytes) Grow(bytes);
    }
    return buffer_.get() + used_;
  }
  void Advance(const char* end) { used_ = static_cast<size_t>(end - buffer_.get()); }
  absl::Status Flush() {
    WriteOut();
    return status_;
  }

 private:
  static constexpr size_t kFlushBytes = size_t{256} << 10;
  void Grow(size_t bytes) {
    buffer_ = std::make_unique_for_overwrite<char[]>(bytes);
    capacity_ = bytes;
  }
  void WriteOut() {
    if (status_.ok()) status_ = output_->Write({buffer_.get(), used_});
    used_ = 0;
  }

  Output* output_;
  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0, used_ = 0;
  absl::Status status_;
};

// Internal unless an exporter wrote as many samples as the profile has.
absl::Status CheckTotal(absl::string_view format, uint64_t written, uint64_t expected);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_OUTPUT_H_
