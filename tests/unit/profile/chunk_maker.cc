#include "tests/unit/profile/chunk_maker.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "xenprof/chunk/writer.h"

namespace xenprof::profile {

symbols::Resolved TableSymbolizer::Resolve(const symbols::MappingInfo& mapping,
                                           absl::Span<const uint64_t> addresses) {
  symbols::Resolved resolved;
  resolved.source = "table";
  resolved.problem = problems[mapping.name];
  for (const symbols::Function& function : functions[mapping.name]) {
    for (const uint64_t address : addresses) {
      if (address >= function.start && address < function.start + function.size) {
        resolved.functions.push_back(function);
        break;
      }
    }
  }
  for (const symbols::Lines& line : lines[mapping.name]) {
    if (std::find(addresses.begin(), addresses.end(), line.address) != addresses.end())
      resolved.lines.push_back(line);
  }
  return resolved;
}

ChunkMaker::ChunkMaker() {
  tables_.mappings.emplace_back();
  tables_.tasks.emplace_back();
  tables_.nodes.push_back({0, 0});
  domains_.emplace_back();
  header.mutable_host()->set_hostname("dom0");
  header.mutable_host()->set_boot_id("boot-1");
  header.mutable_host()->set_kernel_release("6.12.117");
  header.mutable_host()->set_cpu_count(2);
  header.mutable_event()->set_name("cycles");
  header.mutable_event()->set_frequency_hz(100);
  header.mutable_mode()->set_kind(proto::Mode::XEN_STACKS);
  header.mutable_mode()->set_reason("callers seen");
  header.mutable_hypervisor()->set_version("4.17.5");
}

uint32_t ChunkMaker::Mapping(FrameKind kind, const std::string& name, bool is_file,
                             const std::string& build_id) {
  merge::Mapping mapping;
  mapping.kind = kind;
  mapping.name = name;
  mapping.is_file = is_file;
  mapping.build_id = build_id;
  tables_.mappings.push_back(mapping);
  return tables_.mappings.size() - 1;
}

uint32_t ChunkMaker::Task(uint32_t pid, uint32_t tid, const std::string& comm) {
  merge::Task task;
  task.pid = pid;
  task.tid = tid;
  task.comm = comm;
  tables_.tasks.push_back(task);
  return tables_.tasks.size() - 1;
}

uint32_t ChunkMaker::Domain(uint32_t domid, const std::string& name) {
  proto::Domain domain;
  domain.set_domid(domid);
  domain.set_name(name);
  domain.set_method(proto::Domain::SCHED_TRACE);
  domain.set_confidence_percent(100);
  domains_.push_back(domain);
  return domains_.size() - 1;
}

uint32_t ChunkMaker::Stack(const std::vector<std::pair<uint32_t, uint64_t>>& frames, Origin origin,
                           uint8_t flags) {
  uint32_t node = 0;
  for (size_t i = frames.size(); i-- > 0;) {
    const auto [frame, new_frame] = frames_.try_emplace(frames[i], tables_.frames.size());
    if (new_frame) tables_.frames.push_back({frames[i].first, frames[i].second});
    const auto [child, new_node] = nodes_.try_emplace({node, frame->second}, tables_.nodes.size());
    if (new_node) tables_.nodes.push_back({node, frame->second});
    node = child->second;
  }
  tables_.stacks.push_back({node, origin, flags});
  return tables_.stacks.size() - 1;
}

void ChunkMaker::Sample(uint32_t cpu, uint64_t time_ns, uint32_t stack, uint32_t task, uint32_t domain) {
  samples_[cpu].push_back({time_ns, stack, task, domain});
}

void ChunkMaker::ModeFrom(uint64_t time_ns, proto::Mode::Kind kind) { modes_[time_ns] = kind; }

std::string ChunkMaker::WriteTo(const std::string& path, bool seal) {
  header.set_start_ns(start_ns);
  header.set_realtime_offset_ns(realtime_offset_ns);
  auto writer = chunk::ChunkWriter::Create(path, header, {.sync = false});
  if (!writer.ok()) {
    ADD_FAILURE() << writer.status();
    return "";
  }
  for (uint64_t at = start_ns; at < end_ns; at += block_ns) {
    merge::Window window;
    window.start_ns = at;
    window.end_ns = std::min(at + block_ns, end_ns);
    chunk::DomainColumns domains;
    domains.domains = domains_;
    for (const auto& [cpu, samples] : samples_) {
      merge::CpuColumns columns;
      columns.cpu = cpu;
      columns.sampled_ns = window.end_ns - window.start_ns;
      std::vector<uint32_t> of_sample;
      for (const Placed& sample : samples) {
        if (sample.time_ns < window.start_ns || sample.time_ns >= window.end_ns) continue;
        columns.time_ns.push_back(sample.time_ns);
        columns.stack.push_back(sample.stack);
        columns.task.push_back(sample.task);
        of_sample.push_back(sample.domain);
      }
      window.cpus.push_back(columns);
      domains.of_sample.push_back(of_sample);
    }
    for (const merge::Incident& incident : incidents_) {
      if (incident.start_ns >= window.start_ns && incident.start_ns < window.end_ns) {
        window.incidents.push_back(incident);
      }
    }
    for (const auto& [since, kind] : modes_) {
      if (since < window.start_ns || since >= window.end_ns) continue;
      proto::Mode mode;
      mode.set_kind(kind);
      (*writer)->SetMode(mode);
    }
    const absl::Status written = (*writer)->WriteBlock(window, tables_, realtime_offset_ns, &domains);
    EXPECT_TRUE(written.ok()) << written;
  }
  if (!seal) return path + ".partial";
  const absl::Status sealed = (*writer)->Seal(tables_, &symbolizer, proto::Trailer::REQUESTED);
  EXPECT_TRUE(sealed.ok()) << sealed;
  return path;
}

std::string ChunkMaker::Write(const std::string& path) { return WriteTo(path, /*seal=*/true); }
std::string ChunkMaker::WriteUnsealed(const std::string& path) { return WriteTo(path, /*seal=*/false); }

TemporaryFolder::TemporaryFolder() {
  std::string name = testing::TempDir() + "/xenprof-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() { std::filesystem::remove_all(path_); }

std::vector<Input> Files(const std::vector<std::string>& paths) {
  std::vector<Input> inputs;
  for (const std::string& path : paths) inputs.push_back({path, {}});
  return inputs;
}

std::string WriteXenHostChunk(const std::string& path) {
  ChunkMaker maker;
  const uint32_t xen = maker.Mapping(FrameKind::kHypervisor, "[xen]", false);
  const uint32_t kernel =
      maker.Mapping(FrameKind::kDom0Kernel, "[kernel]", false, std::string("\x01\x02\x03", 3));
  const uint32_t program =
      maker.Mapping(FrameKind::kDom0User, "/usr/bin/xl", true, std::string("\xaa\xbb", 2));
  const uint32_t guest_kernel = maker.Mapping(FrameKind::kGuestKernel, "[guest kernel]", false);
  const uint32_t guest_user = maker.Mapping(FrameKind::kGuestUser, "[guest user]", false);
  maker.symbolizer.functions["[xen]"] = {{0xffff82d040200000, 0x100, "lstar_enter"},
                                         {0xffff82d040201000, 0x100, "do_domctl"},
                                         {0xffff82d040202000, 0x100, "default_idle"}};
  maker.symbolizer.functions["[kernel]"] = {{0xffffffff81000000, 0x1000, "do_syscall_64"},
                                            {0xffffffff81002000, 0x1000, "hypercall_page"}};
  maker.symbolizer.functions["/usr/bin/xl"] = {{0x1000, 0x100, "main"},
                                               {0x2000, 0x100, "xc_domain_getinfolist"}};
  const uint32_t xl = maker.Task(100, 100, "xl"), shell = maker.Task(200, 201, "sh");
  const uint32_t guest = maker.Domain(1, "guest1");
  const std::vector<std::pair<uint32_t, uint64_t>> user = {{program, 0x2010}, {program, 0x1050}};
  const std::vector<std::pair<uint32_t, uint64_t>> in_kernel = {
      {kernel, 0xffffffff81002010}, {kernel, 0xffffffff81000040}, {program, 0x2010}, {program, 0x1050}};
  std::vector<std::pair<uint32_t, uint64_t>> in_xen = {{xen, 0xffff82d040201008}, {xen, 0xffff82d040200020}};
  in_xen.insert(in_xen.end(), in_kernel.begin(), in_kernel.end());
  const uint32_t stacks[] = {
      maker.Stack(user, Origin::kDom0User),
      maker.Stack(in_kernel, Origin::kDom0Kernel),
      maker.Stack(in_xen, Origin::kXenForDom0),
      maker.Stack({{xen, 0xffff82d040202004}}, Origin::kXenIdle),
      maker.Stack({{xen, 0xffff82d040200010}}, Origin::kXenForGuest),
      maker.Stack({{guest_kernel, 0xffffffff81345678}}, Origin::kGuestKernel),
      maker.Stack({{guest_user, 0x401234}}, Origin::kGuestUser),
      maker.Stack({}, Origin::kUnknown),
      maker.Stack({{program, 0x9999}, {program, 0x1050}}, Origin::kDom0User, kStackTruncated),
      maker.Stack({{xen, 0xffff82d040209999}}, Origin::kXenForGuest, kStackGuessedOrigin),
  };
  for (uint64_t i = 0; i < kXenHostSamples; ++i) {
    const uint64_t s = i * 7 % 10;
    const bool of_guest = s >= 4 && s <= 6;
    maker.Sample(i % 2, maker.start_ns + i / 2 * 20'000'000 + i % 2, stacks[s], i % 3 == 0 ? shell : xl,
                 of_guest ? guest : 0);
  }
  return maker.Write(path);
}

}  // namespace xenprof::profile
