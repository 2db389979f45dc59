#include "xenprof/chunk/payload_limits.h"

#include "absl/strings/str_cat.h"
#include "xenprof/chunk/envelope.h"

namespace xenprof::chunk {
namespace {

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
bool CountItems(absl::Span<const uint8_t> bytes, Kind kind, uint64_t* left) {
  while (!bytes.empty()) {
    const Varint key = ReadVarint(bytes);
    if (key.bytes <= 0) return false;
    bytes.remove_prefix(key.bytes);
    size_t size = 0;
    switch (key.value & 7) {
      case 0: {
        const Varint value = ReadVarint(bytes);
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
        const Varint length = ReadVarint(bytes);
        if (length.bytes <= 0) return false;
        bytes.remove_prefix(length.bytes);
        if (length.value > bytes.size()) return false;
        size = length.value;
        if ((*left)-- == 0) {
          *left = 0;
          return false;
        }
        const Kind child = KindOf(kind, key.value >> 3);
        if (child != Kind::kLeaf && !CountItems(bytes.first(size), child, left)) return false;
        break;
      }
      default:
        return false;  // groups: this format has none
    }
    if (size > bytes.size()) return false;
    bytes.remove_prefix(size);
  }
  return true;
}

}  // namespace

absl::Status CheckPayloadItems(absl::string_view payload, uint64_t max_items) {
  uint64_t left = max_items;
  if (CountItems({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()}, Kind::kPayload, &left)) {
    return absl::OkStatus();
  }
  if (left == 0)
    return absl::InvalidArgumentError(absl::StrCat("payload of more than ", max_items, " items"));
  return absl::InvalidArgumentError("malformed payload");
}

}  // namespace xenprof::chunk
