#include "xenprof/base/json.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "xenprof/base/utf8.h"

namespace xenprof {
std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const unsigned char c = static_cast<unsigned char>(text.front());
    size_t length = 1;
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&out, "\\u%04x", c);
    } else if ((length = Utf8Length(text)) > 0) {
      out.append(text.data(), length);
    } else {
      out += "\\ufffd";
      length = 1;
    }
    text.remove_prefix(length);
  }
  out.push_back('"');
  return out;
}

void JsonWriter::NewLine() {
  out_.push_back('\n');
  out_.append(2 * has_entries_.size(), ' ');
}

void JsonWriter::BeforeValue() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (has_entries_.empty()) return;
  if (has_entries_.back()) out_.push_back(',');
  has_entries_.back() = true;
  NewLine();
}

JsonWriter& JsonWriter::BeginObject() {
  BeforeValue();
  out_.push_back('{');
  has_entries_.push_back(false);
  return *this;
}

JsonWriter& JsonWriter::EndObject() {
  const bool entries = has_entries_.back();
  has_entries_.pop_back();
  if (entries) NewLine();
  out_.push_back('}');
  return *this;
}

JsonWriter& JsonWriter::BeginArray() {
  BeforeValue();
  out_.push_back('[');
  has_entries_.push_back(false);
  return *this;
}

JsonWriter& JsonWriter::EndArray() {
  const bool entries = has_entries_.back();
  has_entries_.pop_back();
  if (entries) NewLine();
  out_.push_back(']');
  return *this;
}

JsonWriter& JsonWriter::Key(absl::string_view name) {
  BeforeValue();
  absl::StrAppend(&out_, JsonString(name), ": ");
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::String(absl::string_view value) {
  BeforeValue();
  out_ += JsonString(value);
  return *this;
}

JsonWriter& JsonWriter::Unsigned(uint64_t value) {
  BeforeValue();
  absl::StrAppend(&out_, value);
  return *this;
}

JsonWriter& JsonWriter::Signed(int64_t value) {
  BeforeValue();
  absl::StrAppend(&out_, value);
  return *this;
}

JsonWriter& JsonWriter::Number(double value) {
  if (!std::isfinite(value)) return Null();
  BeforeValue();
  absl::StrAppendFormat(&out_, "%.6g", value);
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) {
  BeforeValue();
  out_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::Null() {
  BeforeValue();
  out_ += "null";
  return *this;
}

std::string JsonWriter::Take() {
  out_.push_back('\n');
  std::string out = std::move(out_);
  *this = JsonWriter();
  return out;
}

}  // namespace xenprof
