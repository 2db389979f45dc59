#include "xenprof/chunk/totals.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace xenprof::chunk {

void Totals::AddBlock(uint64_t offset, uint64_t start_ns, uint64_t end_ns, int64_t realtime_offset_ns,
                      uint64_t samples) {
  start_ns_ = blocks_.empty() ? start_ns : std::min(start_ns_, start_ns);
  end_ns_ = blocks_.empty() ? end_ns : std::max(end_ns_, end_ns);
  realtime_offset_ns_ = realtime_offset_ns;
  samples_ += samples;
  blocks_.push_back({offset, start_ns, end_ns, samples});
}

void Totals::AddOrigins(const std::array<uint64_t, kOriginCount>& by_origin) {
  for (int i = 0; i < kOriginCount; ++i) by_origin_[i] += by_origin[i];
}

void Totals::AddIncident(const proto::Incident& incident) {
  Cpu* cpu = incident.cpu_plus_one() == 0 ? nullptr : &cpus_[incident.cpu_plus_one() - 1];
  switch (incident.kind()) {
    case proto::Incident::LOST:
      lost_ += incident.count();
      if (cpu != nullptr) cpu->lost += incident.count();
      break;
    case proto::Incident::QUEUE_FULL:
      shed_ += incident.count();
      if (cpu != nullptr) cpu->shed += incident.count();
      break;
    case proto::Incident::THROTTLED:
      if (cpu != nullptr && incident.end_ns() > incident.start_ns()) {
        cpu->throttled_ns += incident.end_ns() - incident.start_ns();
      }
      break;
    default:
      break;
  }
}

void Totals::AddBlock(uint64_t offset, const proto::Block& block, const ChunkDecoder& decoder) {
  std::array<uint64_t, kOriginCount> by_origin{};
  uint64_t samples = 0;
  decoder.ForEachSample(block, [&](uint32_t, uint64_t, uint32_t stack, uint32_t, uint32_t) {
    ++by_origin[static_cast<size_t>(decoder.tables().stacks[stack].origin)];
    ++samples;
  });
  for (const proto::CpuSamples& cpu : block.cpus()) {
    AddSamples(cpu.cpu(), static_cast<uint64_t>(cpu.stack_size()));
  }
  AddBlock(offset, block.start_ns(), block.end_ns(), block.realtime_offset_ns(), samples);
  AddOrigins(by_origin);
  for (const proto::Incident& incident : block.incidents()) AddIncident(incident);
}

void Totals::Fill(proto::Trailer* trailer) const {
  trailer->set_start_ns(start_ns_);
  trailer->set_end_ns(end_ns_);
  trailer->set_realtime_offset_ns(realtime_offset_ns_);
  trailer->set_samples(samples_);
  trailer->set_lost(lost_);
  trailer->set_shed(shed_);
  for (const uint64_t samples : by_origin_) trailer->add_samples_by_origin(samples);
  for (const auto& [id, cpu] : cpus_) {
    proto::Trailer::CpuTotal* total = trailer->add_cpus();
    total->set_cpu(id);
    total->set_samples(cpu.samples);
    total->set_lost(cpu.lost);
    total->set_throttled_ns(cpu.throttled_ns);
    total->set_shed(cpu.shed);
  }
  for (const Block& block : blocks_) {
    proto::Trailer::BlockIndex* index = trailer->add_blocks();
    index->set_offset(block.offset);
    index->set_start_ns(block.start_ns);
    index->set_end_ns(block.end_ns);
    index->set_samples(block.samples);
  }
}

std::vector<std::string> Totals::Differences(const proto::Trailer& trailer) const {
  std::vector<std::string> differences;
  const auto compare = [&](const std::string& what, auto told, auto found) {
    if (told != found) {
      differences.push_back(absl::StrCat("the trailer says ", told, " ", what, ", the blocks have ", found));
    }
  };
  proto::Trailer mine;
  Fill(&mine);
  compare("ns as start", trailer.start_ns(), mine.start_ns());
  compare("ns as end", trailer.end_ns(), mine.end_ns());
  compare("ns from monotonic to real time", trailer.realtime_offset_ns(), mine.realtime_offset_ns());
  compare("samples", trailer.samples(), mine.samples());
  compare("lost records", trailer.lost(), mine.lost());
  compare("shed samples", trailer.shed(), mine.shed());
  for (int i = 0; i < std::max(kOriginCount, trailer.samples_by_origin_size()); ++i) {
    compare(absl::StrCat("samples of origin ", i),
            i < trailer.samples_by_origin_size() ? trailer.samples_by_origin(i) : 0,
            i < kOriginCount ? mine.samples_by_origin(i) : 0);
  }
  compare("CPUs", trailer.cpus_size(), mine.cpus_size());
  for (int i = 0; i < std::min(trailer.cpus_size(), mine.cpus_size()); ++i) {
    const auto& told = trailer.cpus(i);
    const auto& found = mine.cpus(i);
    const std::string of = absl::StrCat(" of CPU ", found.cpu());
    compare(absl::StrCat("as CPU number ", i), told.cpu(), found.cpu());
    compare(absl::StrCat("samples", of), told.samples(), found.samples());
    compare(absl::StrCat("lost records", of), told.lost(), found.lost());
    compare(absl::StrCat("throttled ns", of), told.throttled_ns(), found.throttled_ns());
    compare(absl::StrCat("shed samples", of), told.shed(), found.shed());
  }
  compare("blocks", trailer.blocks_size(), mine.blocks_size());
  for (int i = 0; i < std::min(trailer.blocks_size(), mine.blocks_size()); ++i) {
    const auto& told = trailer.blocks(i);
    const auto& found = mine.blocks(i);
    const std::string of = absl::StrCat(" of block ", i);
    compare(absl::StrCat("as offset", of), told.offset(), found.offset());
    compare(absl::StrCat("ns as start", of), told.start_ns(), found.start_ns());
    compare(absl::StrCat("ns as end", of), told.end_ns(), found.end_ns());
    compare(absl::StrCat("samples", of), told.samples(), found.samples());
  }
  return differences;
}

}  // namespace xenprof::chunk
