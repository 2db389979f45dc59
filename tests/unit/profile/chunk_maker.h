// Real chunk files with chosen samples and names, for tests: made by the chunk room's own writer.
#ifndef TESTS_UNIT_PROFILE_CHUNK_MAKER_H_
#define TESTS_UNIT_PROFILE_CHUNK_MAKER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chunk.pb.h"
#include "xenprof/merge/window.h"
#include "xenprof/profile/build.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::profile {

// Gives the names it was told, whatever it is asked by.
class TableSymbolizer : public symbols::Symbolizer {
 public:
  void Note(const symbols::MappingInfo&) override {}
  symbols::Resolved Resolve(const symbols::MappingInfo& mapping,
                            absl::Span<const uint64_t> addresses) override;

  std::map<std::string, std::vector<symbols::Function>> functions;  // by mapping name, ascending
  std::map<std::string, std::vector<symbols::Lines>> lines;
  std::map<std::string, std::string> problems;
};

class ChunkMaker {
 public:
  ChunkMaker();

  uint32_t Mapping(FrameKind kind, const std::string& name, bool is_file, const std::string& build_id = "");
  uint32_t Task(uint32_t pid, uint32_t tid, const std::string& comm);
  uint32_t Domain(uint32_t domid, const std::string& name);
  // Frames leaf first: mapping, address.
  uint32_t Stack(const std::vector<std::pair<uint32_t, uint64_t>>& frames, Origin origin, uint8_t flags = 0);
  // In the order of time for each CPU.
  void Sample(uint32_t cpu, uint64_t time_ns, uint32_t stack, uint32_t task, uint32_t domain = 0);
  void AddIncident(merge::Incident incident) { incidents_.push_back(std::move(incident)); }
  // The mode from the block on that holds `time_ns`.
  void ModeFrom(uint64_t time_ns, proto::Mode::Kind kind);

  // Writes [start_ns, end_ns) in blocks of `block_ns` and seals. A failure fails the test and gives "".
  std::string Write(const std::string& path);
  // Leaves the chunk as a writer's death would; returns the partial file's path.
  std::string WriteUnsealed(const std::string& path);

  proto::Header
      header;  // hostname "dom0", boot "boot-1", cycles at 100 Hz, xen stacks, realtime offset below
  uint64_t start_ns = 1'000'000'000, end_ns = 11'000'000'000, block_ns = 2'000'000'000;
  int64_t realtime_offset_ns = 1'700'000'000'000'000'000;
  TableSymbolizer symbolizer;

 private:
  struct Placed {
    uint64_t time_ns;
    uint32_t stack, task, domain;
  };
  std::string WriteTo(const std::string& path, bool seal);

  merge::Tables tables_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> nodes_;
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> frames_;
  std::map<uint32_t, std::vector<Placed>> samples_;
  std::vector<merge::Incident> incidents_;
  std::vector<proto::Domain> domains_;
  std::map<uint64_t, proto::Mode::Kind> modes_;
};

// A folder that is removed with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::vector<Input> Files(const std::vector<std::string>& paths);

// A chunk as a Xen host's: hypervisor, dom0 kernel, dom0 programs, a guest; 1,000 samples on two CPUs, one
// every 20 ms.
std::string WriteXenHostChunk(const std::string& path);
inline constexpr uint64_t kXenHostSamples = 1000;

}  // namespace xenprof::profile

#endif  // TESTS_UNIT_PROFILE_CHUNK_MAKER_H_
