// Where exporters write to.
#ifndef XENPROF_EXPORT_OUTPUT_H_
#define XENPROF_EXPORT_OUTPUT_H_

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
  explicit BufferedOutput(Output* output) : output_(output) { buffer_.reserve(kFlushBytes + 4096); }
  // To append to; call MaybeFlush() now and then.
  std::string& buffer() { return buffer_; }
  void MaybeFlush() {
    if (buffer_.size() >= kFlushBytes) WriteOut();
  }
  absl::Status Flush() {
    WriteOut();
    return status_;
  }

 private:
  static constexpr size_t kFlushBytes = size_t{256} << 10;
  void WriteOut() {
    if (status_.ok()) status_ = output_->Write(buffer_);
    buffer_.clear();
  }

  Output* output_;
  std::string buffer_;
  absl::Status status_;
};

// Internal unless an exporter wrote as many samples as the profile has.
absl::Status CheckTotal(absl::string_view format, uint64_t written, uint64_t expected);

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_OUTPUT_H_
