// Any bytes as a chunk file: nothing may crash, and what a strict reader takes a salvaging one must take
// alike.
//
// The first byte says how the rest is meant: 0, a file as it is; 1, payloads without their envelopes (each:
// two bytes of length, little-endian, then a serialised Payload), which are given right checksums, for no
// fuzzer guesses those.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "chunk.pb.h"
#include "xenprof/chunk/crc32c.h"
#include "xenprof/chunk/decoder.h"
#include "xenprof/chunk/envelope.h"
#include "xenprof/chunk/reader.h"

namespace {

using namespace xenprof;         // NOLINT
using namespace xenprof::chunk;  // NOLINT

void Require(bool holds) {
  if (!holds) abort();
}

void AppendStored(absl::string_view payload, std::string* file) {
  std::string envelope = "\x0d";
  const uint32_t crc = Crc32c(payload.data(), payload.size());
  for (int shift = 0; shift < 32; shift += 8) envelope.push_back(static_cast<char>(crc >> shift));
  envelope.push_back('\x1a');
  AppendVarint(payload.size(), &envelope);
  envelope.append(payload.data(), payload.size());
  AppendVarint(envelope.size(), file);
  *file += envelope;
}

std::string Wrap(absl::string_view payloads) {
  proto::Payload header;
  header.mutable_header()->set_magic("xenprof");
  header.mutable_header()->set_format_version(kFormatVersion);
  std::string file;
  AppendStored(header.SerializeAsString(), &file);
  while (payloads.size() >= 2) {
    const size_t size =
        static_cast<uint8_t>(payloads[0]) | static_cast<size_t>(static_cast<uint8_t>(payloads[1])) << 8;
    payloads.remove_prefix(2);
    AppendStored(payloads.substr(0, size), &file);
    payloads.remove_prefix(std::min(size, payloads.size()));
  }
  return file;
}

struct Seen {
  bool ok = false;
  uint64_t samples = 0, sum = 0;
};

Seen ReadAll(const std::string& file, bool salvage) {
  Seen seen;
  ReadOptions options;
  options.salvage = salvage;
  options.max_payload_bytes = 1 << 20;
  auto reader = ChunkReader::FromBytes(file, "FILE", options);
  if (!reader.ok()) return seen;
  (*reader)->ReadTrailer().IgnoreError();
  ChunkDecoder decoder((*reader)->header(), ChunkDecoder::Options{salvage});
  proto::Payload payload;
  while (true) {
    auto more = (*reader)->Next(&payload);
    if (!more.ok()) return seen;
    if (!*more) break;
    if (!decoder.Add(payload).ok()) {
      if (!salvage) return seen;
      (*reader)->ReportDamage("contradicts itself");
      continue;
    }
    if (!payload.has_block()) continue;
    decoder.ForEachSample(
        payload.block(), [&](uint32_t cpu, uint64_t time, uint32_t stack, uint32_t task, uint32_t domain) {
          Require(time >= payload.block().start_ns() && time < payload.block().end_ns());
          Require(task < decoder.tables().tasks.size() && domain < decoder.domains().size());
          ++seen.samples;
          seen.sum += cpu + time + stack;
        });
  }
  for (uint32_t stack = 0; stack < decoder.tables().stacks.size(); ++stack) {
    decoder.ForEachFrame(stack, [&](uint32_t frame, bool is_leaf) {
      const merge::Frame& at = decoder.tables().frames[frame];
      Require(at.mapping < decoder.tables().mappings.size());
      const uint64_t address = decoder.LookupAddress(frame, is_leaf);
      seen.sum += decoder.FunctionFor(at.mapping, address).name.size();
      for (const ChunkDecoder::Line& line : decoder.LinesFor(at.mapping, address))
        seen.sum += line.file.size();
    });
  }
  seen.ok = true;
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string file = data[0] == 0 ? std::string(rest) : Wrap(rest);
  const Seen strict = ReadAll(file, false);
  const Seen salvaged = ReadAll(file, true);
  if (strict.ok) Require(salvaged.ok && salvaged.samples == strict.samples && salvaged.sum == strict.sum);
  return 0;
}
