// Writes JSON as it goes: no tree is kept.
#ifndef XENPROF_BASE_JSON_H_
#define XENPROF_BASE_JSON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xenprof {

// `text` as a JSON string with its quotes. Bytes that are no UTF-8 become U+FFFD, so that the output is
// always valid.
std::string JsonString(absl::string_view text);

class JsonWriter {
 public:
  JsonWriter& BeginObject();
  JsonWriter& EndObject();
  JsonWriter& BeginArray();
  JsonWriter& EndArray();
  JsonWriter& Key(absl::string_view name);
  JsonWriter& String(absl::string_view value);
  JsonWriter& Unsigned(uint64_t value);
  JsonWriter& Signed(int64_t value);
  JsonWriter& Number(double value);  // a number that is not finite becomes null
  JsonWriter& Bool(bool value);
  JsonWriter& Null();

  // The text so far, with a newline at its end; the writer is empty afterwards.
  std::string Take();

 private:
  void BeforeValue();
  void NewLine();

  std::string out_;
  std::vector<bool> has_entries_;  // per open object or array
  bool after_key_ = false;
};

}  // namespace xenprof

#endif  // XENPROF_BASE_JSON_H_
