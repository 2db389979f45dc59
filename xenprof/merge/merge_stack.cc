// xen-facts.md section 2: whose frame is whose, and whose time it was.
#include <algorithm>

#include "xenprof/merge/batch.h"

namespace xenprof::merge {
namespace {

using perf::CpuMode;

bool IsMarker(uint64_t entry) { return entry >= perf::kContextMax; }

bool InIdle(const MergeOptions& options, uint64_t address) {
  auto range =
      std::upper_bound(options.xen_idle.begin(), options.xen_idle.end(), address,
                       [](uint64_t a, const std::pair<uint64_t, uint64_t>& r) { return a < r.first; });
  return range != options.xen_idle.begin() && address < std::prev(range)->second;
}

bool AnyInIdle(const MergeOptions& options, const MergedStack& stack) {
  for (int i = 0; i < stack.hypervisor_frames; ++i) {
    // Callers are return addresses: the call is before them.
    if (InIdle(options, stack.addresses[i] - (i > 0 ? 1 : 0))) return true;
  }
  return false;
}

// The chain, taken apart. Positions are into `addresses`, in the order hypervisor, kernel, user.
class Parts {
 public:
  explicit Parts(MergedStack* stack) : stack_(*stack) {
    stack_.hypervisor_frames = stack_.kernel_frames = stack_.user_frames = 0;
  }
  // Each must follow the order of the parts; what does not fit is dropped (a chain is 127 entries unless
  // sysctl says more) and the stack flagged.
  void Hypervisor(uint64_t address) { Put(address, stack_.hypervisor_frames); }
  void Kernel(uint64_t address) { Put(address, stack_.kernel_frames); }
  void User(uint64_t address) { Put(address, stack_.user_frames); }
  // The same for the addresses at the front of `run`, up to a marker or, for the kernel, a user address. Says
  // how many there were, or had room.
  size_t KernelRun(absl::Span<const uint64_t> run) {
    return PutRun(run, kUserAddressEnd, stack_.kernel_frames);
  }
  size_t UserRun(absl::Span<const uint64_t> run) { return PutRun(run, 0, stack_.user_frames); }

 private:
  // Addresses in [first, kContextMax).
  size_t PutRun(absl::Span<const uint64_t> run, uint64_t first, int& count) {
    const size_t room = static_cast<size_t>(MergedStack::kMaxFrames - stack_.size());
    uint64_t* const to = stack_.addresses + stack_.size();
    const size_t most = std::min(room, run.size());
    size_t i = 0;
    for (; i < most; ++i) {
      const uint64_t address = run[i];
      if (address - first >= perf::kContextMax - first) break;
      to[i] = address;
    }
    count += static_cast<int>(i);
    return i;
  }
  void Put(uint64_t address, int& count) {
    if (stack_.size() == MergedStack::kMaxFrames) {
      stack_.flags |= kStackTruncated;
      return;
    }
    stack_.addresses[stack_.size()] = address;
    ++count;
  }
  MergedStack& stack_;
};

// Below the lowest page the kernel lets anyone map, or above all that user space may have (five levels of
// page tables).
bool NobodyReturnsTo(uint64_t address) { return address < 4096 || address >= uint64_t{1} << 56; }

// A program without frame pointers lets the kernel walk on through its data: what that holds differs in every
// sample, so that the same stack is never met twice unless it is cut here, before anything is compared. The
// first user frame is the register's and stands.
void CutUserCallers(MergedStack* stack) {
  const int begin = stack->hypervisor_frames + stack->kernel_frames;
  for (int i = begin + 1; i < begin + stack->user_frames; ++i) {
    if (!NobodyReturnsTo(stack->addresses[i])) continue;
    stack->addresses[i] = 0;
    stack->user_frames = i - begin + 1;
  }
}

// A guest's sample: the sampled address, and frames of the guest where the kernel walked them (the KVM series
// sends GUEST_KERNEL or GUEST_USER markers). Dom0's own frames, whatever task was current, are not the
// guest's.
void MergeGuest(const perf::Sample& sample, MergedStack* stack) {
  const bool kernel = sample.mode == CpuMode::kGuestKernel;
  stack->origin = kernel ? Origin::kGuestKernel : Origin::kGuestUser;
  Parts parts(stack);
  auto put = [&](uint64_t address) { kernel ? parts.Kernel(address) : parts.User(address); };
  put(sample.ip);
  bool guest_part = false;
  bool first = true;
  for (uint64_t entry : sample.chain) {
    if (IsMarker(entry)) {
      guest_part = entry == perf::kContextGuest || entry == perf::kContextGuestKernel ||
                   entry == perf::kContextGuestUser;
      continue;
    }
    if (!guest_part) continue;
    if (!(first && entry == sample.ip)) put(entry);
    first = false;
  }
}

}  // namespace

void MergeStack(const perf::Sample& sample, const MergeOptions& options, MergedStack* stack) {
  stack->flags = kStackComplete;
  const bool guest_mode = sample.mode == CpuMode::kGuestKernel || sample.mode == CpuMode::kGuestUser;
  const bool ip_in_hypervisor = IsHypervisorAddress(sample.ip);

  if (guest_mode && options.software_clock_on_xen) {
    stack->hypervisor_frames = stack->kernel_frames = stack->user_frames = 0;
    if (sample.interrupted_ip != 0) {
      // The kernel walks no stack then: it takes the sample for a guest's.
      Parts parts(stack);
      const bool user = IsUserAddress(sample.interrupted_ip);
      user ? parts.User(sample.interrupted_ip) : parts.Kernel(sample.interrupted_ip);
      stack->origin = user ? Origin::kDom0User : Origin::kDom0Kernel;
      if (user) stack->flags |= kStackNoUserCallers;
      return;
    }
    stack->flags |= kStackGuessedOrigin;
    stack->origin = Origin::kUnknown;
    for (uint64_t entry : sample.chain) {
      if (entry == perf::kContextKernel) {
        stack->origin = Origin::kDom0Kernel;
        break;
      }
      if (entry == perf::kContextUser) {
        stack->origin = Origin::kDom0User;
        break;
      }
    }
    return;
  }
  if (guest_mode) {
    // Xen's only if the kernel part begins with the same address: an HVM guest may use Xen's range for
    // itself.
    bool confirmed = false;
    bool any_frame = false;
    if (ip_in_hypervisor) {
      uint64_t context = perf::kContextKernel;
      for (uint64_t entry : sample.chain) {
        if (IsMarker(entry)) {
          context = entry;
          continue;
        }
        confirmed = !any_frame && context == perf::kContextKernel && entry == sample.ip;
        any_frame = true;
        break;
      }
    }
    // Xen on behalf of a guest's user mode has no frames at all, nor has a guest's own user code.
    const bool probably = ip_in_hypervisor && !any_frame && sample.mode == CpuMode::kGuestUser;
    if (!confirmed && !probably) {
      MergeGuest(sample, stack);
      return;
    }
    if (probably) stack->flags |= kStackGuessedOrigin;
  }

  // One walk: leading Xen addresses, dom0 kernel, user. Once user frames have begun nothing else is believed,
  // since a user stack may hold any value.
  Parts parts(stack);
  const bool hypervisor_sample = ip_in_hypervisor;
  // A lower-half address is user code, whatever the mode says.
  const bool user_mode = sample.mode == CpuMode::kUser || sample.mode == CpuMode::kGuestUser ||
                         (sample.mode == CpuMode::kKernel && IsUserAddress(sample.ip));
  size_t entries = 0;
  {
    // The leaf first; the chain's own copy of it is passed over below.
    if (hypervisor_sample) {
      parts.Hypervisor(sample.ip);
    } else if (user_mode) {
      parts.User(sample.ip);
    } else {
      parts.Kernel(sample.ip);
    }
    bool in_user_part = user_mode;
    bool leaf_seen = false;              // the chain's copy of the leaf has been passed
    bool own_part_begun = false;         // an entry of the leaf's own part has been met
    uint64_t last_kernel_side_user = 0;  // a user address met in the kernel part, to tell its repeat
    bool user_part_begun = false;
    for (size_t at = 0; at < sample.chain.size();) {
      const uint64_t entry = sample.chain[at++];
      if (IsMarker(entry)) {
        if (entry == perf::kContextUser) {
          in_user_part = true;
        } else if (entry == perf::kContextKernel && stack->user_frames == 0) {
          in_user_part = false;
        }
        continue;
      }
      ++entries;
      if (!own_part_begun) {
        own_part_begun = true;
        if (entry == sample.ip) {
          leaf_seen = true;
          continue;
        }
      } else if (hypervisor_sample && leaf_seen && entries == 2 && entry == sample.ip) {
        // An out-of-range frame count makes the kernel store the leaf twice.
        continue;
      }
      if (in_user_part) {
        if (!user_part_begun) {
          user_part_begun = true;
          // Xen for dom0 in user mode ends its kernel part with the user's ip, and the user part begins with
          // it again.
          if (last_kernel_side_user != 0 && entry == last_kernel_side_user) continue;
        }
        if (hypervisor_sample && stack->kernel_frames == 0 && stack->user_frames == 0 &&
            IsHypervisorAddress(entry)) {
          parts.Hypervisor(entry);
        } else {
          parts.User(entry);
        }
      } else if (IsUserAddress(entry)) {
        parts.User(entry);
        last_kernel_side_user = entry;
      } else if (stack->user_frames > 0) {
        parts.User(entry);
      } else if (IsHypervisorAddress(entry) && stack->kernel_frames == 0) {
        parts.Hypervisor(entry);
      } else {
        parts.Kernel(entry);
      }
      // Once none of the odd cases above can come any more, up to the next marker, the rest goes at once.
      if (hypervisor_sample && entries < 2) continue;
      size_t run = 0;
      if (in_user_part && stack->user_frames > 0) {
        run = parts.UserRun(sample.chain.subspan(at));
      } else if (!in_user_part && stack->kernel_frames > 0 && stack->user_frames == 0) {
        run = parts.KernelRun(sample.chain.subspan(at));
      }
      at += run;
      entries += run;
    }
  }
  if (entries >= options.max_stack) stack->flags |= kStackTruncated;
  if (!options.keep_unmapped_callers) CutUserCallers(stack);

  if (!hypervisor_sample) {
    if (user_mode) {
      stack->origin = Origin::kDom0User;
      if (options.pv_dom0 && stack->user_frames == 1) stack->flags |= kStackNoUserCallers;
    } else if (sample.mode == CpuMode::kKernel) {
      stack->origin = Origin::kDom0Kernel;
    } else {
      stack->origin = Origin::kUnknown;
    }
    return;
  }

  // In Xen, for whom? With callers in Xen the sample itself proves that cpumode can be trusted.
  const bool trusted = options.hypervisor_stacks || stack->hypervisor_frames > 1;
  auto drop_dom0_frames = [&] { stack->kernel_frames = stack->user_frames = 0; };
  if (guest_mode) {
    drop_dom0_frames();
    if (AnyInIdle(options, *stack)) {
      stack->origin = Origin::kXenIdle;
    } else if (!trusted || options.xen_idle.empty()) {
      // A patched kernel on an unpatched Xen reports all of Xen as a guest's; without Xen's symbols idle
      // looks the same.
      stack->origin = Origin::kUnknown;
    } else {
      stack->origin = Origin::kXenForGuest;
      if (stack->hypervisor_frames == 1) stack->flags |= kStackGuessedOrigin;
    }
    return;
  }
  if (trusted || options.dom0_counted_only) {
    stack->origin = Origin::kXenForDom0;
    return;
  }
  // An unpatched host: dom0's current task had nothing to do with it, as far as one can tell.
  drop_dom0_frames();
  stack->origin = AnyInIdle(options, *stack) ? Origin::kXenIdle : Origin::kUnknown;
}

}  // namespace xenprof::merge
