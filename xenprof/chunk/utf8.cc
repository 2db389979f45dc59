#include "xenprof/chunk/utf8.h"

#include <algorithm>
#include <cstdint>

namespace xenprof::chunk {
namespace {

// Bytes of the well-formed sequence `text` begins with; 0: none. Unicode standard, table 3-7.
size_t SequenceBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;
  if (first < 0xe0) return continues(1) ? 2 : 0;
  if (first < 0xf0) {
    const uint8_t lowest = first == 0xe0 ? 0xa0 : 0x80, highest = first == 0xed ? 0x9f : 0xbf;
    return byte(1) >= lowest && byte(1) <= highest && continues(2) ? 3 : 0;
  }
  if (first < 0xf5) {
    const uint8_t lowest = first == 0xf0 ? 0x90 : 0x80, highest = first == 0xf4 ? 0x8f : 0xbf;
    return byte(1) >= lowest && byte(1) <= highest && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

void Fix(std::string* text) {
  if (std::all_of(text->begin(), text->end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; })) return;
  *text = ToUtf8(*text);
}

}  // namespace

std::string ToUtf8(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = SequenceBytes(text);
    if (bytes == 0) {
      out += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      out.append(text.data(), bytes);
      text.remove_prefix(bytes);
    }
  }
  return out;
}

void MakeUtf8(proto::Mode* mode) {
  Fix(mode->mutable_reason());
  Fix(mode->mutable_vpmu());
}

void MakeUtf8(proto::HypervisorFacts* facts) {
  for (std::string* text :
       {facts->mutable_version(), facts->mutable_changeset(), facts->mutable_command_line(),
        facts->mutable_capabilities(), facts->mutable_compiler(), facts->mutable_unavailable_reason()}) {
    Fix(text);
  }
  for (proto::HypervisorFacts::Guest& guest : *facts->mutable_domains()) Fix(guest.mutable_name());
}

void MakeUtf8(proto::Header* header) {
  Fix(header->mutable_producer());
  Fix(header->mutable_source_name());
  if (header->has_host()) {
    proto::Host* host = header->mutable_host();
    for (std::string* text : {host->mutable_hostname(), host->mutable_kernel_release(),
                              host->mutable_machine(), host->mutable_cpu_model(), host->mutable_boot_id()}) {
      Fix(text);
    }
  }
  if (header->has_event()) {
    Fix(header->mutable_event()->mutable_name());
    for (std::string& text : *header->mutable_event()->mutable_refused_attributes()) Fix(&text);
  }
  if (header->has_mode()) MakeUtf8(header->mutable_mode());
  if (header->has_hypervisor()) MakeUtf8(header->mutable_hypervisor());
  for (proto::Note& note : *header->mutable_notes()) Fix(note.mutable_text());
}

}  // namespace xenprof::chunk
