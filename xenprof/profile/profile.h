// What a window of time of any set of chunks is in memory: what every exporter takes.
#ifndef XENPROF_PROFILE_PROFILE_H_
#define XENPROF_PROFILE_PROFILE_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "xenprof/base/types.h"

namespace xenprof::profile {

// Ids are indexes of the vectors of Profile. String 0 is empty.
using StringId = uint32_t;

// Text that stays where it is while more is added.
class StringPool {
 public:
  void Reserve(size_t count) { views_.reserve(count); }
  size_t size() const { return views_.size(); }
  absl::string_view operator[](StringId id) const { return views_[id]; }
  // A new id, whether the text is there already or not.
  StringId Add(absl::string_view text) {
    if (pieces_.empty() || text.size() > left_) {
      left_ = text.size() > kPieceBytes ? text.size() : kPieceBytes;
      pieces_.push_back(std::make_unique_for_overwrite<char[]>(left_));
      next_ = pieces_.back().get();
    }
    if (!text.empty()) std::memcpy(next_, text.data(), text.size());
    views_.emplace_back(next_, text.size());
    next_ += text.size();
    left_ -= text.size();
    return static_cast<StringId>(views_.size() - 1);
  }

 private:
  static constexpr size_t kPieceBytes = size_t{64} << 10;
  std::vector<absl::string_view> views_;
  std::vector<std::unique_ptr<char[]>> pieces_;
  char* next_ = nullptr;  // in the last piece
  size_t left_ = 0;
};

// How finely frames are told apart.
enum class Granularity : uint8_t {
  kFunction,  // by function: every frame has exactly one line, inlined functions are frames of their own
  kAddress,   // by address: a frame's lines tell what was inlined there
};

// What was mapped: a program, a library, the kernel, Xen.
struct Binary {
  FrameKind kind = FrameKind::kUnknown;
  StringId name = 0;     // a path, "[kernel]", "[xen]", ...
  std::string build_id;  // raw bytes
  bool is_file = false;  // addresses are offsets in the file
  bool deleted = false;
  uint64_t start = 0, end = 0;  // of one that is no file; 0 when unknown
  StringId symbol_source = 0;   // where its names came from
  StringId symbol_problem = 0;  // why there are none
};

struct Function {
  StringId name = 0;    // never empty: "module+0xoffset" when nobody could name it
  StringId module = 0;  // the binary's name without folders
  FrameKind kind = FrameKind::kUnknown;
  bool named = false;
  uint32_t binary = 0;   // one it was seen in
  uint64_t address = 0;  // its start when known, else the address sampled
};

// A function at an address, with where in the source that was when the chunk told.
struct Line {
  uint32_t function = 0;
  StringId file = 0;
  uint32_t line = 0;  // 0: unknown
};

struct Frame {
  uint32_t binary = 0;
  uint64_t address =
      0;  // in the binary's space; a return address is already less 1. kFunction: Function.address
  uint32_t first_line = 0;
  uint32_t line_count = 1;  // innermost first; at least 1, the last is the function that was really called
};

// A stack is the path from a node to the root. Node 0 is the root and has no frame; a parent comes before its
// children.
struct Node {
  uint32_t parent = 0;
  uint32_t frame = 0;
};

struct Task {
  uint32_t host = 0;
  uint32_t pid = 0, tid = 0;
  StringId comm = 0;
  bool kernel_thread = false;
};

struct Domain {
  uint32_t host = 0;
  uint32_t domid = 0;
  StringId name = 0;
  std::string uuid;     // 16 bytes or empty
  uint32_t method = 0;  // proto Domain.Method
  uint32_t confidence_percent = 0;
};

inline constexpr uint32_t kAnyCpu = std::numeric_limits<uint32_t>::max();

// Samples that agree in all the dimensions asked for, added up. Tasks[0] and domains[0] stand for "not told
// apart".
struct Sample {
  uint32_t node = 0;
  uint32_t task = 0;
  uint32_t domain = 0;
  uint32_t cpu = kAnyCpu;
  uint32_t host = 0;
  Origin origin = Origin::kUnknown;
  uint8_t flags = 0;  // StackFlags
  uint64_t count = 0;
  uint64_t time_ns = 0;  // count times the period then in force; 0 when the period is no time
};

// One boot of one machine.
struct Host {
  std::string hostname;
  std::string boot_id;
  std::string kernel_release;
  std::string machine;
  std::string cpu_model;
  uint32_t cpu_count = 0;
  std::string event;          // "cycles", "cpu-clock"
  uint32_t frequency_hz = 0;  // the last in force; 0: fixed period
  uint64_t period = 0;        // events a sample when frequency_hz is 0
  std::string xen_version, xen_changeset, xen_command_line;
  std::string xen_unavailable;  // why the three above are missing
  uint64_t samples = 0;
  std::vector<std::string> notes;  // warnings the collector left
};

// A collection mode that was in force for some of the samples.
struct ModeUse {
  uint32_t host = 0;
  ModeKind kind = ModeKind::kUnspecified;
  std::string reason;
  std::string vpmu;
  uint64_t samples = 0;
};

struct CpuCoverage {
  uint32_t host = 0;
  uint32_t cpu = 0;
  uint64_t samples = 0;
  uint64_t lost = 0;  // records, by a full ring
  uint64_t shed = 0;  // samples, by the collector's own queues
  uint64_t throttled_ns = 0;
  uint64_t sampled_ns = 0;
  uint64_t silent_ns = 0;  // an event was open, nothing came
};

// Something that happened to the collection, in the order of time.
struct Happening {
  uint32_t host = 0;
  int64_t cpu = -1;                  // -1: all
  int kind = 0;                      // proto Incident.Kind
  int64_t start_ns = 0, end_ns = 0;  // CLOCK_REALTIME
  uint64_t count = 0;
  std::string text;
};

struct DamagedInput {
  std::string file;
  uint64_t offset = 0, bytes = 0;
  std::string reason;
};

struct Coverage {
  std::vector<CpuCoverage> cpus;  // ascending by host, cpu
  // Gaps, silent and absent CPUs, changes of frequency, bad and unknown records. Losses and throttling are in
  // `cpus` when their CPU is known.
  std::vector<Happening> happenings;
  std::vector<DamagedInput> damage;
  uint64_t lost = 0, shed = 0;  // of all CPUs and of those unknown
  uint64_t throttled_ns = 0;
  uint64_t gap_ns = 0;  // added over CPUs is not meant: time nobody sampled, per host
  uint64_t bad_records = 0, unknown_records = 0;
  uint64_t sideband_lost = 0;
  uint64_t unsealed_inputs = 0;                           // chunks whose writer died or still writes
  uint64_t duplicate_inputs = 0, overlapping_inputs = 0;  // counted once only
  std::vector<std::string> notes;

  // True when nothing is known to be missing or damaged.
  bool clean() const;
};

// The total a share is of, and what every exporter has to arrive at.
struct Totals {
  uint64_t samples = 0;
  uint64_t time_ns = 0;
  std::array<uint64_t, kOriginCount> by_origin{};
  uint64_t guessed_origin = 0, truncated = 0, no_user_callers = 0;
};

class Profile {
 public:
  absl::string_view str(StringId id) const { return strings[id]; }
  const Line& line(const Frame& frame, uint32_t i = 0) const { return lines[frame.first_line + i]; }
  const Function& function_of(const Frame& frame) const { return functions[line(frame).function]; }

  // That samples add up to the totals and every id is in range: Internal says what does not. DataLoss: a
  // stack deeper than any sample's.
  absl::Status Check() const;

  Granularity granularity = Granularity::kFunction;
  bool by_task = false, by_domain = false, by_cpu = false;  // dimensions kept

  StringPool strings;
  std::vector<Binary> binaries;  // [0]: none known
  std::vector<Function> functions;
  std::vector<Line> lines;
  std::vector<Frame> frames;
  std::vector<Node> nodes;
  std::vector<Task> tasks;
  std::vector<Domain> domains;
  std::vector<Sample> samples;
  std::vector<Host> hosts;
  std::vector<ModeUse> modes;
  Coverage coverage;
  Totals totals;

  // CLOCK_REALTIME. The window asked for, cut to what the chunks cover.
  int64_t start_ns = 0, end_ns = 0;
  uint64_t chunks = 0;  // that gave samples or coverage
};

}  // namespace xenprof::profile

#endif  // XENPROF_PROFILE_PROFILE_H_
