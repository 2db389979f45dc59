#include "test_support.h"

#include <ftw.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace xenprof::chunk {

TempFolder::TempFolder() {
  // In memory where that is possible: fsync thousands of times is what these tests would wait for.
  for (const std::string& parent : {std::string("/dev/shm"), testing::TempDir()}) {
    std::string pattern = parent + "/chunk_test_XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) continue;
    path_ = pattern;
    return;
  }
  ADD_FAILURE() << "cannot make a temporary folder";
}

TempFolder::~TempFolder() {
  nftw(
      path_.c_str(), [](const char* path, const struct stat*, int, FTW*) { return remove(path); }, 8,
      FTW_DEPTH | FTW_PHYS);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  ASSERT_TRUE(file.flush()) << path;
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

void PrintTo(const PlainSample& sample, std::ostream* out) {
  *out << "CPU " << sample.cpu << " " << sample.time_ns << " " << OriginName(sample.origin) << " "
       << sample.comm << " " << sample.pid << "/" << sample.tid << " dom" << sample.domid << ":";
  for (const std::string& frame : sample.frames) *out << " " << frame;
}

Host::Host(uint64_t seed, uint32_t cpus) : state_(seed * 2654435761 + 1), cpus_(cpus) { StartChunk(); }

// xorshift64*: the same on every machine.
uint64_t Host::Random(uint64_t below) {
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return (state_ * 0x2545f4914f6cdd1d >> 16) % below;
}

void Host::StartChunk() {
  tables_ = {};
  frames_.clear();
  nodes_.clear();
  stacks_.clear();
  tables_.mappings.push_back({});
  tables_.mappings.push_back({.kind = FrameKind::kHypervisor,
                              .name = "[xen]",
                              .build_id = std::string("\x01\x02\x00\x04", 4),
                              .start = 0xffff82d040200000,
                              .end = 0xffff82d040600000});
  tables_.mappings.push_back(
      {.kind = FrameKind::kDom0Kernel, .name = "[kernel]", .start = 0xffffffff81000000});
  tables_.mappings.push_back({.kind = FrameKind::kDom0User,
                              .name = "/usr/bin/prog",
                              .build_id = std::string(20, 'b'),
                              .is_file = true});
  tables_.mappings.push_back(
      {.kind = FrameKind::kDom0User, .name = "//anon nameless", .deleted = true, .pid = 77});
  tables_.tasks.push_back({.comm = "swapper", .kernel_thread = true});
  for (uint32_t i = 1; i < 5; ++i) {
    tables_.tasks.push_back(
        {.pid = 100 + i / 2, .tid = 100 + i, .comm = absl::StrCat("task", i), .start_ns = i});
  }
  tables_.nodes.push_back({0, 0});
  domains_.domains.assign(1, proto::Domain());
  proto::Domain& domain = domains_.domains.emplace_back();
  domain.set_domid(7);
  domain.set_uuid(std::string(16, '\x07'));
  domain.set_name("guest");
  domain.set_method(proto::Domain::SCHED_TRACE);
  domain.set_confidence_percent(90);
}

uint32_t Host::StackOf(const std::vector<std::pair<uint32_t, uint64_t>>& frames, Origin origin,
                       uint8_t flags) {
  uint32_t node = 0;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    const auto [id, new_frame] = frames_.try_emplace(*frame, tables_.frames.size());
    if (new_frame) tables_.frames.push_back({frame->first, frame->second});
    const auto [next, new_node] = nodes_.try_emplace({node, id->second}, tables_.nodes.size());
    if (new_node) tables_.nodes.push_back({node, id->second});
    node = next->second;
  }
  const auto [id, is_new] =
      stacks_.try_emplace({node, static_cast<int>(origin), flags}, tables_.stacks.size());
  if (is_new) tables_.stacks.push_back({node, origin, flags});
  return id->second;
}

const merge::Window& Host::Advance(uint64_t length_ns, uint64_t step_ns) {
  window_.start_ns = now_ns_;
  window_.end_ns = now_ns_ += length_ns;
  window_.cpus.clear();
  window_.incidents.clear();
  domains_.of_sample.clear();
  for (uint32_t cpu = 0; cpu < cpus_; ++cpu) {
    merge::CpuColumns& columns = window_.cpus.emplace_back();
    std::vector<uint32_t>& domains = domains_.of_sample.emplace_back();
    columns.cpu = 2 * cpu;
    columns.sampled_ns = length_ns;
    for (uint64_t time = window_.start_ns; time < window_.end_ns; time += step_ns + Random(3000)) {
      const uint64_t kind = Random(4);
      std::vector<std::pair<uint32_t, uint64_t>> frames;
      if (kind == 0) frames.push_back({1, 0xffff82d040200000 + Random(40) * 33});
      if (kind <= 1) {
        for (uint64_t i = Random(4); i > 0; --i) frames.push_back({2, 0xffffffff81000000 + Random(30) * 257});
      }
      if (kind <= 2) {
        for (uint64_t i = Random(5); i > 0; --i) frames.push_back({3, 0x1000 + Random(50) * 77});
        if (Random(9) == 0) frames.push_back({4, 0x7f0000000000 + Random(1 << 20)});
      }
      const Origin origin = kind == 0   ? Origin::kXenForDom0
                            : kind == 1 ? Origin::kDom0Kernel
                            : kind == 2 ? Origin::kDom0User
                                        : Origin::kGuestUser;
      const uint8_t flags = Random(20) == 0 ? kStackTruncated : kStackComplete;
      const uint32_t task = kind == 3 ? 0 : static_cast<uint32_t>(Random(tables_.tasks.size()));
      columns.time_ns.push_back(time);
      columns.stack.push_back(StackOf(frames, origin, flags));
      columns.task.push_back(task);
      domains.push_back(kind == 3 ? 1 : 0);
      PlainSample& sample = samples_.emplace_back();
      sample = {2 * cpu,
                time,
                {},
                origin,
                flags,
                tables_.tasks[task].pid,
                tables_.tasks[task].tid,
                tables_.tasks[task].comm,
                kind == 3 ? 7u : 0u};
      for (const auto& [mapping, address] : frames) {
        sample.frames.push_back(absl::StrCat(tables_.mappings[mapping].name, "@", address));
      }
    }
  }
  std::stable_sort(samples_.begin(), samples_.end(),
                   [](const PlainSample& a, const PlainSample& b) { return a.Key() < b.Key(); });
  return window_;
}

symbols::Resolved MadeUpNames::Resolve(const symbols::MappingInfo& mapping,
                                       absl::Span<const uint64_t> addresses) {
  asked.push_back(mapping);
  symbols::Resolved resolved;
  resolved.source = "made up";
  const bool nameless = absl::StrContains(mapping.name, "nameless");
  if (nameless) resolved.problem = "nothing has names here";
  for (const uint64_t address : addresses) {
    const uint64_t start = address / 64 * 64;
    if (resolved.functions.empty() || resolved.functions.back().start != start) {
      resolved.functions.push_back(
          {start, 64, nameless ? std::string() : absl::StrCat(mapping.name, "_", start / 64)});
    }
    if (!nameless && address % 2 == 0) {
      resolved.lines.push_back(
          {address, {{"inlined", "a.h", 3}, {resolved.functions.back().name, "a.c", 70}}});
    }
  }
  return resolved;
}

proto::Header MadeUpHeader() {
  proto::Header header;
  header.set_producer("chunk_test 1");
  header.set_start_ns(uint64_t{5000} * 1000000000);
  header.set_realtime_offset_ns(1700000000000000000);
  header.mutable_host()->set_hostname("host");
  header.mutable_host()->set_boot_id("boot-1");
  header.mutable_event()->set_name("cycles");
  header.mutable_event()->set_frequency_hz(97);
  header.mutable_mode()->set_kind(proto::Mode::XEN_STACKS);
  header.mutable_hypervisor()->set_version("4.17.5");
  return header;
}

Contents ReadAll(std::unique_ptr<ChunkReader> reader) {
  Contents contents;
  contents.header = reader->header();
  contents.decoder =
      std::make_unique<ChunkDecoder>(reader->header(), ChunkDecoder::Options{reader->salvaging()});
  ChunkDecoder& decoder = *contents.decoder;
  proto::Payload payload;
  while (true) {
    const absl::StatusOr<bool> more = reader->Next(&payload);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) break;
    const absl::Status status = decoder.Add(payload);
    if (!status.ok()) {
      EXPECT_TRUE(reader->salvaging()) << status;
      reader->ReportDamage(std::string(status.message()));
      continue;
    }
    if (payload.has_trailer()) {
      contents.trailer = payload.trailer();
      contents.sealed = true;
    }
    if (!payload.has_block()) continue;
    for (const proto::Incident& incident : payload.block().incidents())
      contents.incidents.push_back(incident);
    decoder.ForEachSample(
        payload.block(), [&](uint32_t cpu, uint64_t time, uint32_t stack, uint32_t task, uint32_t domain) {
          const merge::Tables& tables = decoder.tables();
          PlainSample& sample = contents.samples.emplace_back();
          sample.cpu = cpu;
          sample.time_ns = time;
          decoder.ForEachFrame(stack, [&](uint32_t frame, bool) {
            sample.frames.push_back(absl::StrCat(tables.mappings[tables.frames[frame].mapping].name, "@",
                                                 tables.frames[frame].address));
          });
          sample.origin = tables.stacks[stack].origin;
          sample.flags = tables.stacks[stack].flags;
          sample.pid = tables.tasks[task].pid;
          sample.tid = tables.tasks[task].tid;
          sample.comm = tables.tasks[task].comm;
          sample.domid = decoder.domains()[domain].domid();
        });
  }
  contents.damage = reader->damage();
  std::stable_sort(contents.samples.begin(), contents.samples.end(),
                   [](const PlainSample& a, const PlainSample& b) { return a.Key() < b.Key(); });
  return contents;
}

Contents ReadAll(const std::string& path) {
  absl::StatusOr<std::unique_ptr<ChunkReader>> reader = ChunkReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return {};
  return ReadAll(*std::move(reader));
}

std::string MakeChunk(const std::string& path, Host* host, int blocks, uint64_t block_ns, uint64_t step_ns,
                      const WriterOptions& options) {
  proto::Header header = MadeUpHeader();
  header.set_start_ns(host->now_ns());
  absl::StatusOr<std::unique_ptr<ChunkWriter>> writer = ChunkWriter::Create(path, header, options);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (int i = 0; i < blocks; ++i) {
    const merge::Window& window = host->Advance(block_ns, step_ns);
    const absl::Status status =
        (*writer)->WriteBlock(window, host->tables(), 1700000000000000000, host->domains());
    EXPECT_TRUE(status.ok()) << status;
  }
  MadeUpNames names;
  const absl::Status status = (*writer)->Seal(host->tables(), &names, proto::Trailer::ROTATED_TIME);
  EXPECT_TRUE(status.ok()) << status;
  return path;
}

}  // namespace xenprof::chunk
