#include "xenprof/profile/build.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "xenprof/chunk/decoder.h"
#include "xenprof/profile/coverage.h"
#include "xenprof/profile/interner.h"
#include "xenprof/profile/stack_counts.h"
#include "xenprof/profile/translator.h"

namespace xenprof::profile {
namespace {

// Time one sample stands for, in nanoseconds; 0 when the event does not count time.
uint64_t PeriodNs(const proto::Event& event) {
  if (event.frequency_hz() != 0) return 1'000'000'000 / event.frequency_hz();
  // perf's software clocks count nanoseconds.
  return absl::StrContains(event.name(), "clock") ? event.period() : 0;
}

Host MakeHost(const proto::Header& header) {
  Host host;
  host.hostname = header.host().hostname();
  host.boot_id = header.host().boot_id();
  host.kernel_release = header.host().kernel_release();
  host.machine = header.host().machine();
  host.cpu_model = header.host().cpu_model();
  host.cpu_count = header.host().cpu_count();
  return host;
}

void AddOnce(const std::string& text, std::vector<std::string>* to) {
  if (!text.empty() && std::find(to->begin(), to->end(), text) == to->end()) to->push_back(text);
}

class Builder {
 public:
  explicit Builder(const BuildOptions& options) : options_(options), interner_(&profile_) {
    profile_.granularity = options.granularity;
    profile_.by_task = options.by_task;
    profile_.by_domain = options.by_domain;
    profile_.by_cpu = options.by_cpu;
  }

  absl::Status AddChunk(SelectedChunk chunk);
  absl::StatusOr<Profile> Finish(const Selection& selection);

 private:
  uint64_t AddBlock(const proto::Block& block, const chunk::ChunkDecoder& decoder, const SelectedChunk& chunk,
                    uint32_t host, StackCounts* counts);
  void AddCounts(const StackCounts& counts, const chunk::ChunkDecoder& decoder, uint32_t host);
  void AddMode(uint32_t host, const proto::Mode& mode, uint64_t samples);
  void AddHypervisor(uint32_t host, const proto::HypervisorFacts& facts);

  const BuildOptions options_;
  Profile profile_;
  Interner interner_;
  CoverageBuilder coverage_;
  uint64_t period_ns_ = 0;
};

uint64_t Builder::AddBlock(const proto::Block& block, const chunk::ChunkDecoder& decoder,
                           const SelectedChunk& chunk, uint32_t host, StackCounts* counts) {
  // Changes of frequency within the block, ascending.
  std::vector<std::pair<uint64_t, uint64_t>> periods;
  for (const proto::Incident& incident : block.incidents()) {
    if (incident.kind() == proto::Incident::FREQUENCY && incident.count() > 0) {
      periods.emplace_back(incident.start_ns(), std::max<uint64_t>(1'000'000'000 / incident.count(), 1));
    }
  }
  std::sort(periods.begin(), periods.end());

  const Interval range = {block.start_ns(), block.end_ns()};
  uint64_t taken = 0;
  if (chunk.wanted.Overlap(range) > 0) {
    uint32_t last_cpu = 0;
    uint64_t of_cpu = 0;
    const auto take = [&](uint32_t cpu, uint32_t stack, uint32_t task, uint32_t domain, uint64_t period_ns) {
      if (cpu != last_cpu) {
        if (of_cpu > 0) coverage_.AddSamples(host, last_cpu, of_cpu);
        taken += of_cpu;
        of_cpu = 0;
        last_cpu = cpu;
      }
      ++of_cpu;
      counts->Add(stack, task, domain, cpu, period_ns);
    };
    const uint64_t period_ns = period_ns_;
    const bool whole = chunk.wanted.Covers(range);
    if (whole && periods.empty()) {  // nearly always: nobody needs the times, then they are not decoded
      decoder.ForEachSample(block, [&](uint32_t cpu, uint64_t, uint32_t stack, uint32_t task,
                                       uint32_t domain) { take(cpu, stack, task, domain, period_ns); });
    } else {
      decoder.ForEachSample(
          block, [&](uint32_t cpu, uint64_t time_ns, uint32_t stack, uint32_t task, uint32_t domain) {
            if (!whole && !chunk.wanted.Contains(time_ns)) return;
            uint64_t period = period_ns;
            for (const auto& [since, changed] : periods) {
              if (time_ns >= since) period = changed;
            }
            take(cpu, stack, task, domain, period);
          });
    }
    if (of_cpu > 0) coverage_.AddSamples(host, last_cpu, of_cpu);
    taken += of_cpu;
  }
  if (!periods.empty()) {
    period_ns_ = periods.back().second;
    profile_.hosts[host].frequency_hz = static_cast<uint32_t>(1'000'000'000 / period_ns_);
  }
  coverage_.AddBlock(host, block, chunk.wanted, chunk.realtime_offset_ns);
  return taken;
}

void Builder::AddMode(uint32_t host, const proto::Mode& mode, uint64_t samples) {
  const ModeKind kind =
      proto::Mode::Kind_IsValid(mode.kind()) ? static_cast<ModeKind>(mode.kind()) : ModeKind::kUnspecified;
  for (ModeUse& use : profile_.modes) {
    if (use.host == host && use.kind == kind && use.reason == mode.reason() && use.vpmu == mode.vpmu()) {
      use.samples += samples;
      return;
    }
  }
  profile_.modes.push_back({host, kind, mode.reason(), mode.vpmu(), samples});
}

void Builder::AddHypervisor(uint32_t host, const proto::HypervisorFacts& facts) {
  Host& to = profile_.hosts[host];
  if (!facts.version().empty()) to.xen_version = facts.version();
  if (!facts.changeset().empty()) to.xen_changeset = facts.changeset();
  if (!facts.command_line().empty()) to.xen_command_line = facts.command_line();
  if (!facts.unavailable_reason().empty()) to.xen_unavailable = facts.unavailable_reason();
}

void Builder::AddCounts(const StackCounts& counts, const chunk::ChunkDecoder& decoder, uint32_t host) {
  Translator translator(decoder, host, options_.granularity, options_.inlines, &interner_);
  interner_.Reserve(decoder.tables().nodes.size(), decoder.tables().frames.size(), counts.sums());
  Totals& totals = profile_.totals;
  counts.ForEachStack([&](uint32_t stack_id, absl::Span<const StackCounts::Sum> sums) {
    const merge::Stack& stack = decoder.tables().stacks[stack_id];
    Sample sample;
    sample.node = translator.Node(stack_id);
    sample.host = host;
    sample.origin = stack.origin;
    sample.flags = stack.flags;
    uint64_t samples = 0;
    for (const StackCounts::Sum& sum : sums) {
      sample.task = !options_.by_task        ? 0
                    : options_.tasks_by_name ? translator.TaskOfName(sum.task)
                                             : translator.Task(sum.task);
      sample.domain = translator.Domain(sum.domain);
      sample.cpu = options_.by_cpu ? sum.cpu : kAnyCpu;
      sample.count = sum.count;
      sample.time_ns = sum.time_ns;
      interner_.AddSample(sample);
      samples += sum.count;
      totals.time_ns += sum.time_ns;
    }
    profile_.hosts[host].samples += samples;
    totals.samples += samples;
    totals.by_origin[static_cast<size_t>(stack.origin)] += samples;
    if ((stack.flags & kStackGuessedOrigin) != 0) totals.guessed_origin += samples;
    if ((stack.flags & kStackTruncated) != 0) totals.truncated += samples;
    if ((stack.flags & kStackNoUserCallers) != 0) totals.no_user_callers += samples;
  });
}

absl::Status Builder::AddChunk(SelectedChunk selected) {
  if (selected.reader == nullptr) {
    absl::StatusOr<std::unique_ptr<chunk::ChunkReader>> opened =
        chunk::ChunkReader::Open(selected.path, {.salvage = options_.salvage});
    if (!opened.ok()) return opened.status();
    selected.reader = *std::move(opened);
  }
  chunk::ChunkReader& reader = *selected.reader;
  const proto::Header& header = reader.header();
  const uint32_t host = interner_.AddHost(MakeHost(header));
  {
    Host& known = profile_.hosts[host];
    known.event = header.event().name();
    known.frequency_hz = header.event().frequency_hz();
    known.period = header.event().period();
    for (const proto::Note& note : header.notes()) {
      if (note.severity() == proto::Note::WARNING) AddOnce(note.text(), &known.notes);
    }
  }
  AddHypervisor(host, header.hypervisor());
  period_ns_ = PeriodNs(header.event());

  const std::vector<Interval>& parts = selected.wanted.intervals();
  reader.SetWindow(parts.front().start, parts.back().end);
  chunk::ChunkDecoder decoder(header, {.salvage = options_.salvage});
  StackCounts counts(decoder.tables().tasks,
                     {options_.by_task, options_.tasks_by_name, options_.by_domain, options_.by_cpu});
  uint64_t taken = 0;
  AddMode(host, decoder.mode(), 0);
  proto::Payload payload;
  for (;;) {
    absl::StatusOr<bool> more = reader.Next(&payload);
    if (!more.ok()) return more.status();
    if (!*more) break;
    absl::Status added = decoder.Add(payload);
    if (!added.ok()) {
      if (!options_.salvage) return reader.ErrorHere(added.message());
      reader.ReportDamage(std::string(added.message()));
      continue;
    }
    if (!payload.has_block()) continue;
    const uint64_t of_block = AddBlock(payload.block(), decoder, selected, host, &counts);
    taken += of_block;
    AddMode(host, decoder.mode(), of_block);
  }
  AddHypervisor(host, decoder.hypervisor());
  AddCounts(counts, decoder, host);

  if (selected.sealed && selected.wanted.Covers(selected.range) && taken != selected.samples) {
    const std::string text =
        absl::StrCat("its trailer counts ", selected.samples, " samples, its blocks hold ", taken);
    if (!options_.salvage) return absl::DataLossError(absl::StrCat(selected.path, ": ", text));
    if (reader.damage().empty()) profile_.coverage.damage.push_back({selected.path, 0, 0, text});
  }
  if (!selected.sealed) ++profile_.coverage.unsealed_inputs;
  for (const chunk::Damage& damage : reader.damage()) {
    profile_.coverage.damage.push_back({selected.path, damage.offset, damage.bytes, damage.reason});
  }
  ++profile_.chunks;
  return absl::OkStatus();
}

absl::StatusOr<Profile> Builder::Finish(const Selection& selection) {
  profile_.coverage.duplicate_inputs = selection.duplicates;
  profile_.coverage.overlapping_inputs = selection.overlapping;
  coverage_.Finish(&profile_.coverage);
  profile_.start_ns = std::max(selection.start_ns, coverage_.start_ns());
  profile_.end_ns = std::min(selection.end_ns, coverage_.end_ns());
  // A mode nothing was sampled in says nothing about the samples, unless there are none at all.
  if (profile_.totals.samples > 0) {
    profile_.modes.erase(std::remove_if(profile_.modes.begin(), profile_.modes.end(),
                                        [](const ModeUse& use) { return use.samples == 0; }),
                         profile_.modes.end());
  }
  absl::Status checked = profile_.Check();
  if (!checked.ok()) return checked;
  return std::move(profile_);
}

std::string WindowText(const TimeWindow& window) {
  if (window.clock == TimeWindow::Clock::kMonotonic) {
    return absl::StrFormat("%d ns to %d ns of CLOCK_MONOTONIC_RAW", window.start_ns, window.end_ns);
  }
  const auto point = [](int64_t ns) -> std::string {
    if (ns == std::numeric_limits<int64_t>::min()) return "the beginning";
    if (ns == std::numeric_limits<int64_t>::max()) return "the end";
    return absl::FormatTime(absl::RFC3339_full, absl::FromUnixNanos(ns), absl::LocalTimeZone());
  };
  return absl::StrCat(point(window.start_ns), " to ", point(window.end_ns));
}

}  // namespace

absl::StatusOr<Profile> BuildProfile(std::vector<Input> inputs, const TimeWindow& window,
                                     const BuildOptions& options) {
  if (inputs.empty()) return absl::NotFoundError("there are no chunks to read");
  const size_t given = inputs.size();
  absl::StatusOr<Selection> selection = SelectChunks(std::move(inputs), window, {.salvage = options.salvage});
  if (!selection.ok()) return selection.status();
  if (selection->chunks.empty()) {
    return absl::NotFoundError(
        absl::StrCat("none of the ", given, " chunks covers any of ", WindowText(window)));
  }
  Builder builder(options);
  for (SelectedChunk& chunk : selection->chunks) {
    absl::Status added = builder.AddChunk(std::move(chunk));
    if (!added.ok()) return added;
  }
  return builder.Finish(*selection);
}

}  // namespace xenprof::profile
