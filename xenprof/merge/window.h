// Interned samples of all CPUs: what the assembler makes, a block is written from, and the chunk is made of.
#ifndef XENPROF_MERGE_WINDOW_H_
#define XENPROF_MERGE_WINDOW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "xenprof/base/types.h"

namespace xenprof::merge {

// Ids are those of proto/chunk.proto's Dictionary and count over one chunk.

struct Mapping {
  FrameKind kind = FrameKind::kUnknown;
  std::string name;
  std::string build_id;
  bool is_file = false;
  bool deleted = false;
  uint64_t start = 0, end = 0;
  uint32_t pid = 0;
};

struct Task {
  uint32_t pid = 0, tid = 0;
  std::string comm;
  uint64_t start_ns = 0;
  bool kernel_thread = false;
};

struct Frame {
  uint32_t mapping;
  uint64_t address;
};

struct Node {
  uint32_t parent;
  uint32_t frame;
};

struct Stack {
  uint32_t leaf;  // node
  Origin origin;
  uint8_t flags;
};

struct Incident {
  enum class Kind : uint8_t {  // values of proto Incident.Kind
    kLost = 1,
    kThrottled = 2,
    kQueueFull = 3,
    kCpuOffline = 4,
    kCpuOnline = 5,
    kGap = 6,
    kFrequency = 7,
    kUnknownRecord = 8,
    kBadRecord = 9,
    kSilentCpu = 10,
    kSidebandLost = 11,
  };
  Kind kind;
  int64_t cpu = -1;  // -1: all
  uint64_t start_ns = 0, end_ns = 0, count = 0;
  std::string text;
};

// Columns of one CPU, ascending in time.
struct CpuColumns {
  uint32_t cpu = 0;
  std::vector<uint64_t> time_ns;
  std::vector<uint32_t> stack;
  std::vector<uint32_t> task;
  uint64_t sampled_ns = 0;  // how much of the window this CPU was really sampled
};

// Tables of one chunk: they only grow. The first `written_*` entries are already in a block.
struct Tables {
  std::vector<Mapping> mappings;
  std::vector<Task> tasks;
  std::vector<Frame> frames;
  std::vector<Node> nodes;
  std::vector<Stack> stacks;
};
struct TableMarks {
  size_t mappings = 0, tasks = 0, frames = 0, nodes = 0, stacks = 0;
};

struct Window {
  uint64_t start_ns = 0, end_ns = 0;
  std::vector<CpuColumns> cpus;  // ascending by cpu
  std::vector<Incident> incidents;

  size_t samples() const;
  void Clear();  // keeps the memory
};

}  // namespace xenprof::merge

#endif  // XENPROF_MERGE_WINDOW_H_
