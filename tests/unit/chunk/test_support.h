// Windows, names and files for the chunk tests.
#ifndef XENPROF_TESTS_UNIT_CHUNK_TEST_SUPPORT_H_
#define XENPROF_TESTS_UNIT_CHUNK_TEST_SUPPORT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "chunk.pb.h"
#include "xenprof/chunk/decoder.h"
#include "xenprof/chunk/reader.h"
#include "xenprof/chunk/writer.h"
#include "xenprof/merge/window.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::chunk {

// A folder of its own, removed with what is in it.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);
bool Exists(const std::string& path);

// One sample as people mean it: no ids. Frames: "mapping name@address", leaf first.
struct PlainSample {
  uint32_t cpu;
  uint64_t time_ns;
  std::vector<std::string> frames;
  Origin origin;
  uint8_t flags;
  uint32_t pid, tid;
  std::string comm;
  uint32_t domid;
  bool operator==(const PlainSample&) const = default;
  auto Key() const { return std::tie(time_ns, cpu); }
};
void PrintTo(const PlainSample& sample, std::ostream* out);

// Samples of a made-up host: stacks that repeat and new ones, several CPUs and tasks, jitter, the same for
// one seed.
class Host {
 public:
  explicit Host(uint64_t seed = 1, uint32_t cpus = 3);

  // The next `length_ns` at about `step_ns` between samples of a CPU, as a window; what it holds joins
  // samples().
  const merge::Window& Advance(uint64_t length_ns, uint64_t step_ns);
  const merge::Tables& tables() const { return tables_; }
  const DomainColumns* domains() const { return &domains_; }
  const std::vector<PlainSample>& samples() const { return samples_; }  // of all windows, by time and CPU
  uint64_t now_ns() const { return now_ns_; }
  merge::Window* window() { return &window_; }
  // A new chunk: tables start again.
  void StartChunk();

 private:
  uint64_t Random(uint64_t below);
  uint32_t StackOf(const std::vector<std::pair<uint32_t, uint64_t>>& frames, Origin origin, uint8_t flags);

  uint64_t state_;
  uint32_t cpus_;
  uint64_t now_ns_ = uint64_t{5000} * 1000000000;
  merge::Tables tables_;
  DomainColumns domains_;
  merge::Window window_;
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> frames_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> nodes_;
  std::map<std::tuple<uint32_t, int, int>, uint32_t> stacks_;
  std::vector<PlainSample> samples_;
};

// Names every address: "<name>_<address / 64>", 64 bytes each, with one inline frame and lines where the
// address is even. In mappings whose name contains "nameless" such functions have no name and no lines.
class MadeUpNames : public symbols::Symbolizer {
 public:
  void Note(const symbols::MappingInfo&) override {}
  symbols::Resolved Resolve(const symbols::MappingInfo& mapping,
                            absl::Span<const uint64_t> addresses) override;
  std::vector<symbols::MappingInfo> asked;
};

proto::Header MadeUpHeader();

// Everything a chunk holds. Fails the test on any error.
struct Contents {
  proto::Header header;
  std::vector<PlainSample> samples;  // by time and CPU
  std::vector<proto::Incident> incidents;
  std::unique_ptr<ChunkDecoder> decoder;
  proto::Trailer trailer;
  bool sealed = false;
  std::vector<Damage> damage;
};
Contents ReadAll(std::unique_ptr<ChunkReader> reader);
Contents ReadAll(const std::string& path);

// A sealed chunk of `blocks` windows of `host`; returns its path in `folder`.
std::string MakeChunk(const std::string& path, Host* host, int blocks, uint64_t block_ns = 1000000000,
                      uint64_t step_ns = 10000000, const WriterOptions& options = {});

}  // namespace xenprof::chunk

#endif  // XENPROF_TESTS_UNIT_CHUNK_TEST_SUPPORT_H_
