#include "xenprof/chunk/payload_parser.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/repeated_field.h>
#include <google/protobuf/stubs/common.h>

#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "xenprof/chunk/envelope.h"

namespace xenprof::chunk {
namespace {

using Bytes = absl::Span<const uint8_t>;

// Goes through the fields of a serialised message.
class FieldReader {
 public:
  explicit FieldReader(Bytes message) : left_(message) {}
  // False at the end, and where the message is not well-formed.
  bool Next();
  bool malformed() const { return malformed_; }

  uint64_t number() const { return key_ >> 3; }
  bool is_varint() const { return (key_ & 7) == 0; }
  bool has_length() const { return (key_ & 7) == 2; }  // a message, a string, packed numbers
  Bytes value() const { return value_; }               // without its length
  Bytes whole() const { return whole_; }               // with key and length

 private:
  Bytes left_, whole_, value_;
  uint64_t key_ = 0;
  bool malformed_ = false;
};

bool FieldReader::Next() {
  if (left_.empty()) return false;
  malformed_ = true;  // until shown otherwise
  const Varint key = ReadVarint(left_);
  if (key.bytes <= 0) return false;
  key_ = key.value;
  Bytes rest = left_.subspan(static_cast<size_t>(key.bytes));
  size_t size = 0;
  switch (key.value & 7) {
    case 0: {
      const Varint value = ReadVarint(rest);
      if (value.bytes <= 0) return false;
      size = static_cast<size_t>(value.bytes);
      break;
    }
    case 1:
      size = 8;
      break;
    case 5:
      size = 4;
      break;
    case 2: {
      const Varint length = ReadVarint(rest);
      if (length.bytes <= 0) return false;
      rest.remove_prefix(static_cast<size_t>(length.bytes));
      size = length.value;
      break;
    }
    default:
      return false;  // groups: this format has none
  }
  if (size > rest.size()) return false;
  value_ = rest.first(size);
  rest.remove_prefix(size);
  whole_ = left_.first(left_.size() - rest.size());
  left_ = rest;
  malformed_ = false;
  return true;
}

// The messages in a Payload that hold repeated messages or strings themselves; everything else holds numbers,
// or a fixed number of strings. Field numbers of proto/chunk.proto.
enum class Kind { kPayload, kHeader, kBlock, kSymbols, kTrailer, kDictionary, kHypervisor, kEvent, kLeaf };

Kind KindOf(Kind parent, uint64_t field) {
  switch (parent) {
    case Kind::kPayload:
      return field == 1   ? Kind::kHeader
             : field == 2 ? Kind::kBlock
             : field == 3 ? Kind::kSymbols
             : field == 4 ? Kind::kTrailer
                          : Kind::kLeaf;
    case Kind::kHeader:
      return field == 8 ? Kind::kEvent : field == 10 ? Kind::kHypervisor : Kind::kLeaf;
    case Kind::kBlock:
      return field == 4 ? Kind::kDictionary : field == 8 ? Kind::kHypervisor : Kind::kLeaf;
    default:
      return Kind::kLeaf;
  }
}

// False: not well-formed, or too many.
bool CountItems(Bytes message, Kind kind, uint64_t* left) {
  FieldReader fields(message);
  while (fields.Next()) {
    if (!fields.has_length()) continue;
    if ((*left)-- == 0) {
      *left = 0;
      return false;
    }
    const Kind child = KindOf(kind, fields.number());
    if (child != Kind::kLeaf && !CountItems(fields.value(), child, left)) return false;
  }
  return !fields.malformed();
}

template <typename Message>
bool Merge(Bytes bytes, Message* to) {
  google::protobuf::io::CodedInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  return to->MergeFromCodedStream(&stream);
}

template <typename T>
T Plain(uint64_t value) {
  return static_cast<T>(value);
}
// Protobuf's "ZigZag" of sint32 and sint64: 0, -1, 1, -2, ...
template <typename T>
T ZigZag(uint64_t value) {
  const auto bits = static_cast<std::make_unsigned_t<T>>(value);
  return static_cast<T>((bits >> 1) ^ (0 - (bits & 1)));
}

// Adds varints, one behind the other, to a column.
template <auto kDecode, typename T>
bool AddNumbers(Bytes bytes, google::protobuf::RepeatedField<T>* column) {
  const int before = column->size(), most = static_cast<int>(bytes.size());
  column->Reserve(before + most);
  T* const first = column->AddNAlreadyReserved(most);
  T* to = first;
  const uint8_t* from = bytes.data();
  const uint8_t* const end = from + bytes.size();
  while (from != end) {
    uint64_t value = *from++;
    if (value >= 0x80) {
      value &= 0x7f;
      uint8_t byte = 0x80;
      for (int shift = 7; byte >= 0x80; shift += 7) {
        if (from == end || shift > 63) return false;
        byte = *from++;
        value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      }
    }
    *to++ = kDecode(value);
  }
  column->Truncate(before + static_cast<int>(to - first));
  return true;
}

// Goes through a message: what `take(field, &good)` does not take is left to protobuf.
template <typename Message, typename Take>
bool ParseFields(Bytes bytes, Message* message, Take&& take) {
  std::string others;
  FieldReader fields(bytes);
  bool good = true;
  while (good && fields.Next()) {
    if (take(fields, &good)) continue;
    const Bytes whole = fields.whole();
    others.append(reinterpret_cast<const char*>(whole.data()), whole.size());
  }
  return good && !fields.malformed() &&
         (others.empty() || Merge({reinterpret_cast<const uint8_t*>(others.data()), others.size()}, message));
}

bool ParseDictionary(Bytes bytes, proto::Dictionary* to) {
  return ParseFields(bytes, to, [to](const FieldReader& field, bool* good) {
    if (!field.has_length() && !field.is_varint()) return false;  // a column may also come number by number
    switch (field.number()) {
      case proto::Dictionary::kFrameMappingFieldNumber:
        *good = AddNumbers<Plain<uint32_t>>(field.value(), to->mutable_frame_mapping());
        return true;
      case proto::Dictionary::kFrameAddressFieldNumber:
        *good = AddNumbers<ZigZag<int64_t>>(field.value(), to->mutable_frame_address());
        return true;
      case proto::Dictionary::kNodeParentFieldNumber:
        *good = AddNumbers<Plain<uint32_t>>(field.value(), to->mutable_node_parent());
        return true;
      case proto::Dictionary::kNodeFrameFieldNumber:
        *good = AddNumbers<ZigZag<int32_t>>(field.value(), to->mutable_node_frame());
        return true;
      case proto::Dictionary::kStackLeafFieldNumber:
        *good = AddNumbers<ZigZag<int32_t>>(field.value(), to->mutable_stack_leaf());
        return true;
      case proto::Dictionary::kStackKindFieldNumber:
        *good = AddNumbers<Plain<uint32_t>>(field.value(), to->mutable_stack_kind());
        return true;
      default:
        return false;
    }
  });
}

bool ParseCpuSamples(Bytes bytes, proto::CpuSamples* to) {
  return ParseFields(bytes, to, [to](const FieldReader& field, bool* good) {
    if (!field.has_length() && !field.is_varint()) return false;
    switch (field.number()) {
      case proto::CpuSamples::kTimeStepFieldNumber:
        *good = AddNumbers<ZigZag<int64_t>>(field.value(), to->mutable_time_step());
        return true;
      case proto::CpuSamples::kStackFieldNumber:
        *good = AddNumbers<ZigZag<int32_t>>(field.value(), to->mutable_stack());
        return true;
      case proto::CpuSamples::kTaskRunsFieldNumber:
        *good = AddNumbers<Plain<uint32_t>>(field.value(), to->mutable_task_runs());
        return true;
      case proto::CpuSamples::kDomainRunsFieldNumber:
        *good = AddNumbers<Plain<uint32_t>>(field.value(), to->mutable_domain_runs());
        return true;
      default:
        return false;
    }
  });
}

bool ParseBlock(Bytes bytes, proto::Block* to) {
  return ParseFields(bytes, to, [to](const FieldReader& field, bool* good) {
    if (!field.has_length()) return false;
    switch (field.number()) {
      case proto::Block::kDictionaryFieldNumber:
        *good = ParseDictionary(field.value(), to->mutable_dictionary());
        return true;
      case proto::Block::kCpusFieldNumber:
        *good = ParseCpuSamples(field.value(), to->add_cpus());
        return true;
      default:
        return false;
    }
  });
}

}  // namespace

absl::Status ParsePayload(absl::string_view bytes, proto::Payload* payload, uint64_t max_items) {
  const Bytes message(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const absl::Status malformed = absl::InvalidArgumentError("malformed payload");
  uint64_t left = max_items;
  if (!CountItems(message, Kind::kPayload, &left)) {
    return left > 0 ? malformed
                    : absl::InvalidArgumentError(absl::StrCat("payload of more than ", max_items, " items"));
  }
#if GOOGLE_PROTOBUF_VERSION < 4022000
  // Says on stderr what our error says in its place.
  const google::protobuf::LogSilencer silencer;
#endif
  payload->Clear();
  FieldReader fields(message);
  while (fields.Next()) {
    // A block may come in several parts; in one payload with something else, the last counts.
    const bool is_block = fields.has_length() && fields.number() == proto::Payload::kBlockFieldNumber;
    const bool good =
        is_block ? ParseBlock(fields.value(), payload->mutable_block()) : Merge(fields.whole(), payload);
    if (!good) return malformed;
  }
  return absl::OkStatus();
}

}  // namespace xenprof::chunk
