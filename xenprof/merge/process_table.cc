#include "xenprof/merge/process_table.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace xenprof::merge {
namespace {

constexpr absl::string_view kDeleted = " (deleted)";

// execve maps the program, its interpreter and the vdso; what comes after them was mapped by the new program.
constexpr size_t kMappedByExec = 3;

// What the kernel calls executable memory that no file stands behind (mm/mmap.c, perf_event_mmap_event): code
// made at run time.
bool IsAnonymous(absl::string_view name) {
  return name.empty() || absl::StartsWith(name, "//anon") || absl::StartsWith(name, "/dev/zero") ||
         absl::StartsWith(name, "/anon_hugepage") || absl::StartsWith(name, "/SYSV") ||
         absl::StartsWith(name, "/memfd:") || absl::StartsWith(name, "[stack") ||
         absl::StartsWith(name, "[heap]") || absl::StartsWith(name, "[anon");
}

}  // namespace

const MappedRange* AddressSpace::Find(uint64_t address) const {
  auto after = std::upper_bound(ranges.begin(), ranges.end(), address,
                                [](uint64_t a, const MappedRange& range) { return a < range.start; });
  if (after == ranges.begin()) return nullptr;
  const MappedRange& range = *std::prev(after);
  return address < range.end ? &range : nullptr;
}

const MappedRange* AddressSpace::FindSampled(uint64_t address) const {
  const MappedRange* range = Find(address);
  return range == nullptr && before_exec != nullptr ? before_exec->Find(address) : range;
}

ProcessTable::ProcessTable() : nothing_(std::make_shared<AddressSpace>()) { nothing_->id = 0; }

void ProcessTable::AddThread(uint32_t pid, uint32_t tid, absl::string_view comm, bool kernel_thread) {
  Thread& thread = NewThread(pid, tid);
  thread.comm = std::string(comm);
  thread.kernel_thread = kernel_thread;
}

Thread& ProcessTable::NewThread(uint32_t pid, uint32_t tid) {
  Drop(tid);
  ++processes_[pid].threads;
  auto thread = std::make_unique<Thread>();
  thread->pid = pid;
  thread->tid = tid;
  thread->start_ns = 0;
  thread->kernel_thread = false;
  Thread& made = *thread;
  threads_[tid] = std::move(thread);
  return made;
}

void ProcessTable::Drop(uint32_t tid) {
  auto thread = threads_.find(tid);
  if (thread == threads_.end()) return;
  auto process = processes_.find(thread->second->pid);
  threads_.erase(thread);
  // The leader may go before the rest: the address space goes with the last thread.
  if (process != processes_.end() && --process->second.threads == 0) processes_.erase(process);
}

AddressSpace& ProcessTable::Writable(uint32_t pid) {
  SpacePointer& space = processes_[pid].space;
  if (space == nullptr) {
    space = std::make_shared<AddressSpace>();
  } else if (space.use_count() > 1) {
    space = std::make_shared<AddressSpace>(*space);
  }
  space->id = next_space_id_++;
  return *space;
}

// A process that calls execve begins anew; its mappings follow as events of their own.
void ProcessTable::Exec(uint32_t pid) {
  SpacePointer& space = processes_[pid].space;
  if (space == nullptr) return;
  SpacePointer old = std::move(space);
  if (old->before_exec != nullptr) {
    // Of the last program only, or they would pile up.
    old = std::make_shared<AddressSpace>(*old);
    old->before_exec = nullptr;
  }
  space = std::make_shared<AddressSpace>();
  space->id = next_space_id_++;
  space->before_exec = std::move(old);
}

std::shared_ptr<const MappedFile> ProcessTable::FileOf(const perf::SidebandEvent& mmap) {
  MappedFile file;
  file.name = mmap.name;
  if (absl::EndsWith(file.name, kDeleted)) {
    file.deleted = true;
    file.name.resize(file.name.size() - kDeleted.size());
  }
  if (IsAnonymous(file.name)) {
    file.name = "//anon";
    file.deleted = false;
    file.pid = mmap.pid;
  } else {
    // "[vdso]" has offsets too: the kernel maps it at another address in every process.
    file.is_file = true;
    file.build_id = mmap.build_id;
    file.device = static_cast<uint64_t>(mmap.device_major) << 32 | mmap.device_minor;
    file.inode = mmap.inode;
  }
  std::string key = absl::StrCat(file.pid, "\n", file.inode, "\n", file.device, "\n", file.deleted, "\n");
  key.append(file.build_id).append("\n").append(file.name);
  std::weak_ptr<const MappedFile>& known = files_[key];
  if (std::shared_ptr<const MappedFile> alive = known.lock()) return alive;
  auto made = std::make_shared<const MappedFile>(std::move(file));
  known = made;
  if (files_.size() >= sweep_at_) SweepFiles();
  return made;
}

void ProcessTable::SweepFiles() {
  absl::erase_if(files_, [](const auto& entry) { return entry.second.expired(); });
  sweep_at_ = std::max<size_t>(1024, files_.size() * 2);
}

void ProcessTable::AddRange(uint32_t pid, const perf::SidebandEvent& mmap) {
  if (mmap.length == 0 || mmap.address + mmap.length < mmap.address) return;
  MappedRange added;
  added.start = mmap.address;
  added.end = mmap.address + mmap.length;
  added.file_offset = mmap.page_offset;
  added.since_ns = mmap.time_ns;
  added.file = FileOf(mmap);

  {
    // The same once more (from /proc and then from its event) changes nothing, and keeps what was found in
    // this space.
    const MappedRange* same = SpaceOf(pid).Find(added.start);
    if (same != nullptr && same->start == added.start && same->end == added.end &&
        same->file_offset == added.file_offset) {
      if (same->file == added.file) return;
      // /proc tells an inode where the event tells a build id: the event knows more.
      if (same->file->name == added.file->name && same->file->deleted == added.file->deleted &&
          added.file->build_id.empty() && !same->file->build_id.empty()) {
        return;
      }
    }
  }

  AddressSpace& space = Writable(pid);
  std::vector<MappedRange>& ranges = space.ranges;
  if (ranges.size() >= kMappedByExec) space.before_exec = nullptr;
  auto first = std::lower_bound(ranges.begin(), ranges.end(), added.start,
                                [](const MappedRange& range, uint64_t start) { return range.end <= start; });
  std::vector<MappedRange> pieces;
  auto last = first;
  for (; last != ranges.end() && last->start < added.end; ++last) {
    if (last->start < added.start) {
      pieces.push_back(*last);
      pieces.back().end = added.start;
    }
    if (last->end > added.end) {
      MappedRange rest = *last;
      rest.file_offset += added.end - rest.start;
      rest.start = added.end;
      pieces.push_back(std::move(rest));
    }
  }
  auto place =
      std::find_if(pieces.begin(), pieces.end(), [&](const MappedRange& p) { return p.start >= added.end; });
  pieces.insert(place, std::move(added));
  const size_t at = first - ranges.begin();
  ranges.erase(first, last);
  ranges.insert(ranges.begin() + at, std::make_move_iterator(pieces.begin()),
                std::make_move_iterator(pieces.end()));
}

void ProcessTable::Apply(const perf::SidebandEvent& event) {
  using Type = perf::SidebandEvent::Type;
  switch (event.type) {
    case Type::kMmap:
      if (event.exec) AddRange(event.pid, event);
      return;
    case Type::kComm: {
      if (event.exec) Exec(event.pid);
      Thread& thread = ThreadOf(event.pid, event.tid, event.time_ns);
      if (thread.comm != event.name) {
        thread.comm = event.name;
        thread.chunk = 0;
      }
      if (event.exec) thread.kernel_thread = false;
      return;
    }
    case Type::kFork: {
      if (event.pid != event.parent_pid) {
        // A pid used again: whoever had it is gone.
        SpacePointer space;
        if (auto parent = processes_.find(event.parent_pid); parent != processes_.end())
          space = parent->second.space;
        processes_[event.pid].space = std::move(space);
      }
      const Thread* parent = nullptr;
      if (auto found = threads_.find(event.parent_tid); found != threads_.end()) {
        parent = found->second.get();
      } else if (found = threads_.find(event.parent_pid); found != threads_.end()) {
        parent = found->second.get();
      }
      const std::string comm = parent == nullptr ? "" : parent->comm;
      const bool kernel_thread = parent != nullptr && parent->kernel_thread;
      // Dropping an old thread of this id must not take the new address space with it.
      ++processes_[event.pid].threads;
      Thread& thread = NewThread(event.pid, event.tid);
      --processes_[event.pid].threads;
      thread.comm = comm;
      thread.kernel_thread = kernel_thread;
      thread.start_ns = event.time_ns;
      return;
    }
    case Type::kExit:
      ended_.push_back({event.time_ns, event.pid, event.tid});
      return;
    default:
      return;
  }
}

Thread& ProcessTable::ThreadOf(uint32_t pid, uint32_t tid, uint64_t time_ns) {
  auto known = threads_.find(tid);
  if (known != threads_.end() && known->second->pid == pid) return *known->second;
  std::string comm = pid == 0 ? "swapper" : pid == ~0u ? "(exiting)" : "";
  bool kernel_thread = pid == 0;
  if (auto leader = threads_.find(pid); tid != pid && leader != threads_.end()) {
    comm = leader->second->comm;
    kernel_thread = leader->second->kernel_thread;
  }
  Thread& thread = NewThread(pid, tid);
  thread.comm = std::move(comm);
  thread.kernel_thread = kernel_thread;
  thread.start_ns = time_ns;
  return thread;
}

const AddressSpace& ProcessTable::SpaceOf(uint32_t pid) const {
  auto found = processes_.find(pid);
  return found == processes_.end() || found->second.space == nullptr ? *nothing_ : *found->second.space;
}

void ProcessTable::Forget(uint64_t time_ns) {
  auto keep = ended_.begin();
  for (; keep != ended_.end() && keep->time_ns < time_ns; ++keep) {
    auto thread = threads_.find(keep->tid);
    // The id may have been given to a new task meanwhile.
    if (thread != threads_.end() && thread->second->start_ns <= keep->time_ns) Drop(keep->tid);
  }
  ended_.erase(ended_.begin(), keep);
}

size_t ProcessTable::memory_bytes() const {
  size_t bytes = threads_.capacity() * 16 + threads_.size() * (sizeof(Thread) + 32) + files_.size() * 256;
  for (const auto& [pid, process] : processes_) {
    bytes += 64;
    if (process.space != nullptr) {
      bytes += process.space->ranges.capacity() * sizeof(MappedRange) / process.space.use_count();
    }
  }
  return bytes;
}

}  // namespace xenprof::merge
