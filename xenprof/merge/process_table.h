// Dom0's processes: who is called what, and which file is where in whose address space.
#ifndef XENPROF_MERGE_PROCESS_TABLE_H_
#define XENPROF_MERGE_PROCESS_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "xenprof/perf/record.h"

namespace xenprof::merge {

// A file, or another thing that was mapped executable; one object for all processes that map it.
struct MappedFile {
  std::string name;
  std::string build_id;
  uint64_t device = 0;
  uint64_t inode = 0;
  bool deleted = false;
  bool is_file = false;  // addresses within it are offsets; else virtual addresses of process `pid`
  uint32_t pid = 0;
};

struct MappedRange {
  uint64_t start, end;   // [start, end)
  uint64_t file_offset;  // of start
  uint64_t since_ns;
  std::shared_ptr<const MappedFile> file;
};

// Executable mappings, ascending, never overlapping. Shared between a process and its children until one
// changes it.
struct AddressSpace {
  uint64_t id;  // of this content: never used for another
  std::vector<MappedRange> ranges;
  // What an execve replaced: until it returns, the saved registers are still those of the call in the old
  // program. Null once the new program has mapped something by itself.
  std::shared_ptr<const AddressSpace> before_exec;

  const MappedRange* Find(uint64_t address) const;
  // For an address of a sample: in `ranges`, else in what was there before an execve.
  const MappedRange* FindSampled(uint64_t address) const;
};

struct Thread {
  uint32_t pid, tid;
  std::string comm;
  uint64_t start_ns;
  bool kernel_thread;
  // The assembler's: the id in the chunk numbered `chunk`.
  uint64_t chunk = 0;
  uint32_t task = 0;
};

class ProcessTable {
 public:
  ProcessTable();

  // `/proc`'s word, before any event.
  void AddThread(uint32_t pid, uint32_t tid, absl::string_view comm, bool kernel_thread);

  // mmap, comm, fork and exit; others are ignored. In the order of time.
  void Apply(const perf::SidebandEvent& event);

  // Makes a thread that was never heard of, named by its process if that is known.
  Thread& ThreadOf(uint32_t pid, uint32_t tid, uint64_t time_ns);
  const AddressSpace& SpaceOf(uint32_t pid) const;

  // Threads and processes that ended before `time_ns` are forgotten.
  void Forget(uint64_t time_ns);

  size_t processes() const { return processes_.size(); }
  size_t memory_bytes() const;

 private:
  using SpacePointer = std::shared_ptr<AddressSpace>;

  struct Process {
    SpacePointer space;  // null: nothing mapped
    uint32_t threads = 0;
  };

  void AddRange(uint32_t pid, const perf::SidebandEvent& mmap);
  void Exec(uint32_t pid);
  AddressSpace& Writable(uint32_t pid);
  Thread& NewThread(uint32_t pid, uint32_t tid);
  void Drop(uint32_t tid);
  std::shared_ptr<const MappedFile> FileOf(const perf::SidebandEvent& mmap);
  void SweepFiles();

  struct Ended {
    uint64_t time_ns;
    uint32_t pid, tid;
  };

  uint64_t next_space_id_ = 1;
  SpacePointer nothing_;
  absl::flat_hash_map<uint32_t, Process> processes_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Thread>> threads_;  // by tid: unique while it lives
  absl::flat_hash_map<std::string, std::weak_ptr<const MappedFile>> files_;
  size_t sweep_at_ = 1024;
  std::vector<Ended> ended_;
};

}  // namespace xenprof::merge

#endif  // XENPROF_MERGE_PROCESS_TABLE_H_
