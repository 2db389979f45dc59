#include "xenprof/profile/profile.h"

#include "absl/strings/str_cat.h"

namespace xenprof::profile {
namespace {

// The kernel keeps at most 255 frames, inlined functions multiply them. A made-up file with a stack of
// millions would turn a few bytes into a text of any size.
constexpr uint32_t kMaxStackFrames = 16'384;

}  // namespace

bool Coverage::clean() const {
  return lost == 0 && shed == 0 && throttled_ns == 0 && gap_ns == 0 && bad_records == 0 &&
         sideband_lost == 0 && damage.empty();
}

absl::Status Profile::Check() const {
  Totals sum;
  for (const Sample& sample : samples) {
    if (sample.node >= nodes.size() || sample.task >= tasks.size() || sample.domain >= domains.size() ||
        sample.host >= hosts.size() || static_cast<int>(sample.origin) >= kOriginCount) {
      return absl::InternalError("a profile's sample refers to an entry that does not exist");
    }
    sum.samples += sample.count;
    sum.time_ns += sample.time_ns;
    sum.by_origin[static_cast<size_t>(sample.origin)] += sample.count;
  }
  std::vector<uint32_t> depth(nodes.size());
  for (size_t i = 1; i < nodes.size(); ++i) {
    if (nodes[i].parent >= i || nodes[i].frame >= frames.size()) {
      return absl::InternalError("a profile's stack refers to a frame that does not exist");
    }
    depth[i] = depth[nodes[i].parent] + 1;
    if (depth[i] > kMaxStackFrames) {
      return absl::DataLossError(absl::StrCat("the chunks hold a stack of more than ", kMaxStackFrames,
                                              " frames, which no sample has"));
    }
  }
  for (const Frame& frame : frames) {
    if (frame.line_count == 0 || frame.first_line + frame.line_count > lines.size() ||
        frame.binary >= binaries.size()) {
      return absl::InternalError("a profile's frame refers to a line that does not exist");
    }
  }
  uint64_t by_cpu_samples = 0;
  for (const CpuCoverage& cpu : coverage.cpus) by_cpu_samples += cpu.samples;
  if (sum.samples != totals.samples || sum.time_ns != totals.time_ns || sum.by_origin != totals.by_origin ||
      by_cpu_samples != totals.samples) {
    return absl::InternalError(absl::StrCat("a profile's samples add up to ", sum.samples, ", its CPUs to ",
                                            by_cpu_samples, ", ", totals.samples, " were read"));
  }
  return absl::OkStatus();
}

}  // namespace xenprof::profile
