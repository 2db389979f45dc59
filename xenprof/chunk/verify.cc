#include <algorithm>

#include "absl/strings/str_cat.h"
#include "xenprof/chunk/decoder.h"
#include "xenprof/chunk/reader.h"
#include "xenprof/chunk/totals.h"

namespace xenprof::chunk {

absl::StatusOr<VerifyReport> Verify(const std::string& path) {
  absl::StatusOr<std::unique_ptr<ChunkReader>> opened = ChunkReader::Open(path, {.salvage = true});
  if (!opened.ok()) return opened.status();
  ChunkReader& reader = **opened;
  ChunkDecoder decoder(reader.header(), {.salvage = true});
  Totals totals;
  VerifyReport report;
  proto::Trailer trailer;
  uint64_t trailer_offset = 0;
  proto::Payload payload;
  while (true) {
    absl::StatusOr<bool> more = reader.Next(&payload);
    if (!more.ok()) return more.status();
    if (!*more) break;
    absl::Status status = decoder.Add(payload);
    if (status.ok() && payload.has_block() && report.sealed)
      status = absl::DataLossError("a block behind the trailer");
    if (!status.ok()) {
      reader.ReportDamage(std::string(status.message()));
      continue;
    }
    if (payload.has_trailer()) {
      report.sealed = true;
      trailer = payload.trailer();
      trailer_offset = reader.offset();
    }
    if (!payload.has_block()) continue;
    totals.AddBlock(reader.offset(), payload.block(), decoder);
  }

  const merge::Tables& tables = decoder.tables();
  std::vector<bool> leaf(tables.frames.size(), false), caller(tables.frames.size(), false);
  for (const merge::Stack& stack : tables.stacks) {
    if (stack.leaf != 0) leaf[tables.nodes[stack.leaf].frame] = true;
  }
  for (size_t i = 1; i < tables.nodes.size(); ++i) {
    if (tables.nodes[i].parent != 0) caller[tables.nodes[tables.nodes[i].parent].frame] = true;
  }
  for (uint32_t frame = 0; frame < tables.frames.size(); ++frame) {
    const uint32_t mapping = tables.frames[frame].mapping;
    const auto named = [&](bool is_leaf) {
      return static_cast<bool>(decoder.FunctionFor(mapping, decoder.LookupAddress(frame, is_leaf)));
    };
    if ((leaf[frame] && named(true)) || (caller[frame] && named(false))) ++report.named_frames;
  }
  report.frames = tables.frames.size();
  report.blocks = totals.blocks();
  report.samples = totals.samples();
  report.lost = totals.lost();
  report.shed = totals.shed();
  report.start_ns = totals.start_ns();
  report.end_ns = totals.end_ns();
  report.realtime_offset_ns = totals.realtime_offset_ns();
  report.problems = reader.damage();
  if (report.sealed) {
    std::vector<std::string> differences = totals.Differences(trailer);
    if (trailer.frames() != report.frames) {
      differences.push_back(
          absl::StrCat("the trailer says ", trailer.frames(), " frames, the blocks have ", report.frames));
    }
    if (trailer.named_frames() != report.named_frames) {
      differences.push_back(absl::StrCat("the trailer says ", trailer.named_frames(),
                                         " named frames, there are ", report.named_frames));
    }
    for (std::string& text : differences) report.problems.push_back({trailer_offset, 0, std::move(text)});
  } else {
    report.problems.push_back({reader.file_bytes(), 0, "no trailer: the file was never completed"});
  }
  return report;
}

}  // namespace xenprof::chunk
