// Brings the batches of all CPUs together: sideband in the order of time, addresses to mappings, stacks
// interned.
#ifndef XENPROF_MERGE_ASSEMBLER_H_
#define XENPROF_MERGE_ASSEMBLER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "xenprof/merge/batch.h"
#include "xenprof/merge/window.h"

namespace xenprof::merge {

// A piece of kernel or Xen text with a name: "[kernel]", "[module]", "[xen]".
struct TextRange {
  uint64_t start = 0, end = 0;  // end 0: unknown, up to the next range
  std::string name;
  std::string build_id;
};

class Assembler {
 public:
  Assembler();
  ~Assembler();

  // The kernel's text ranges (image and modules), any order. Addresses outside all of them belong to
  // "[kernel]". Replaces what was set before; takes effect for addresses not yet interned.
  void SetKernelText(std::vector<TextRange> ranges);
  void SetHypervisorText(TextRange range);

  // A process that lived before sampling began, as /proc tells it (or a perf.data's synthesised records).
  void AddProcess(uint32_t pid, uint32_t tid, absl::string_view comm, bool kernel_thread);
  void AddMapping(const perf::SidebandEvent& mmap);

  // Callers in user code where the process has nothing executable mapped, and what follows them, become one
  // frame of mapping "[unknown]" with address 0: no program returns there. True keeps them as they were
  // sampled.
  void KeepUnmappedCallers(bool keep);

  // Called when a user mapping is used by a sample for the first time in this chunk, with a pid that has it.
  void OnNewMapping(std::function<void(const Mapping&, uint32_t pid, uint64_t start)> callback);
  // Called on a KSYMBOL record or when the kernel's text changed otherwise.
  void OnKernelSymbols(std::function<void()> callback);

  // `cpu` is sampled from now on: at its first batch's time unless told. Told again after it was off.
  void StartCpu(uint32_t cpu, uint64_t from_ns);
  void AddBatch(CpuBatch batch);
  void AddIncident(Incident incident);

  // Everything stamped before `until_ns` goes into `window` (appended; window->end_ns becomes until_ns); what
  // is later waits. A record that comes later than its stamp's turn is still taken, with the mappings of
  // then.
  void Advance(uint64_t until_ns, Window* window);
  // Memory of batches lent back to readers.
  CpuBatch TakeRecycled();

  const Tables& tables() const;
  // A new chunk begins: ids start again from 0. Processes and what waits are kept. Returns the tables of the
  // old one.
  Tables StartChunk();
  // Samples waiting for Advance.
  size_t waiting_samples() const;
  // Bytes that tables and processes fill, about.
  size_t memory_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace xenprof::merge

#endif  // XENPROF_MERGE_ASSEMBLER_H_
