// One case per row of xen-facts.md section 2 and per trap named there.
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/merge/context_markers.h"
#include "xenprof/merge/batch.h"

namespace xenprof::merge {
namespace {

using perf::CpuMode;

constexpr uint64_t kXen = 0xffff82d040321000;
constexpr uint64_t kXenCaller = 0xffff82d040201ab3;
constexpr uint64_t kIdle = 0xffff82d040280010;
constexpr uint64_t kKernel = 0xffffffff81025228;
constexpr uint64_t kKernelCaller = 0xffffffff8160e8c6;
constexpr uint64_t kUser = 0x7f2ea410469d;
constexpr uint64_t kUserCaller = 0x55f9b3a8df5c;

struct Shape {
  std::vector<uint64_t> hypervisor, kernel, user;
  Origin origin;
  int flags;
  bool operator==(const Shape&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  auto list = [&](const char* name, const std::vector<uint64_t>& v) {
    out << name << "[";
    for (uint64_t a : v) out << absl::StrCat(absl::Hex(a), " ");
    out << "] ";
  };
  list("hypervisor", shape.hypervisor);
  list("kernel", shape.kernel);
  list("user", shape.user);
  return out << OriginName(shape.origin) << " flags " << shape.flags;
}

Shape Merge(CpuMode mode, uint64_t ip, const std::vector<uint64_t>& chain, const MergeOptions& options) {
  perf::Sample sample;
  sample.mode = mode;
  sample.ip = ip;
  sample.chain = chain;
  MergedStack stack;
  MergeStack(sample, options, &stack);
  Shape shape;
  const uint64_t* at = stack.addresses;
  shape.hypervisor.assign(at, at + stack.hypervisor_frames);
  at += stack.hypervisor_frames;
  shape.kernel.assign(at, at + stack.kernel_frames);
  at += stack.kernel_frames;
  shape.user.assign(at, at + stack.user_frames);
  shape.origin = stack.origin;
  shape.flags = stack.flags;
  return shape;
}

MergeOptions Patched() {
  MergeOptions options;
  options.hypervisor_stacks = true;
  options.pv_dom0 = true;
  options.xen_idle = {{0xffff82d040280000, 0xffff82d040280100}};
  return options;
}

MergeOptions Unpatched() {
  MergeOptions options = Patched();
  options.hypervisor_stacks = false;
  return options;
}

TEST(MergeStack, XenForDom0KernelModeIsOneStack) {
  const Shape whole{
      {kXen, kXenCaller}, {kKernel, kKernelCaller}, {kUser, kUserCaller}, Origin::kXenForDom0, 0};
  EXPECT_EQ(Merge(CpuMode::kKernel, kXen,
                  {K, kXen, kXenCaller, kKernel, kKernelCaller, U, kUser, kUserCaller}, Patched()),
            whole);
  // The kernel that leaves the leaf out.
  EXPECT_EQ(Merge(CpuMode::kKernel, kXen, {K, kXenCaller, kKernel, kKernelCaller, U, kUser, kUserCaller},
                  Patched()),
            whole);
}

TEST(MergeStack, XenForDom0UserModeHasOnlyTheLeaf) {
  EXPECT_EQ(Merge(CpuMode::kUser, kXen, {U, kXen}, Patched()),
            (Shape{{kXen}, {}, {}, Origin::kXenForDom0, 0}));
  EXPECT_EQ(Merge(CpuMode::kUser, kXen, {U, kXen}, Unpatched()),
            (Shape{{kXen}, {}, {}, Origin::kUnknown, 0}));
}

TEST(MergeStack, XenReturningToDom0UserRepeatsTheUserAddressOnce) {
  EXPECT_EQ(Merge(CpuMode::kKernel, kXen, {K, kXen, kXenCaller, kUser, U, kUser, kUserCaller}, Patched()),
            (Shape{{kXen, kXenCaller}, {}, {kUser, kUserCaller}, Origin::kXenForDom0, 0}));
  // One Xen frame, and a user part that does not repeat it.
  EXPECT_EQ(Merge(CpuMode::kKernel, kXen, {K, kXen, kUser, U, kUserCaller}, Patched()),
            (Shape{{kXen}, {}, {kUser, kUserCaller}, Origin::kXenForDom0, 0}));
}

TEST(MergeStack, IdleIsToldFromGuestsByItsFrames) {
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kIdle, {K, kIdle, kXenCaller}, Patched()),
            (Shape{{kIdle, kXenCaller}, {}, {}, Origin::kXenIdle, 0}));
  // An interrupt in the idle loop.
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kXen, {K, kXen, kIdle, U}, Patched()).origin, Origin::kXenIdle);
  // A return address right behind the idle function's end still was called from it, one at its start was not.
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kXen, {K, kXen, 0xffff82d040280100}, Patched()).origin,
            Origin::kXenIdle);
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kXen, {K, kXen, 0xffff82d040280000}, Patched()).origin,
            Origin::kXenForGuest);
  MergeOptions blind = Patched();
  blind.xen_idle.clear();
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kXen, {K, kXen, kXenCaller}, blind).origin, Origin::kUnknown);
}

TEST(MergeStack, XenForAGuestNeverCarriesDom0sStack) {
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kXen, {K, kXen, kXenCaller, U, kUser, kUserCaller}, Patched()),
            (Shape{{kXen, kXenCaller}, {}, {}, Origin::kXenForGuest, 0}));
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kXen, {K, kXen, U, kUser}, Patched()),
            (Shape{{kXen}, {}, {}, Origin::kXenForGuest, kStackGuessedOrigin}));
  EXPECT_EQ(Merge(CpuMode::kGuestUser, kXen, {U}, Patched()),
            (Shape{{kXen}, {}, {}, Origin::kXenForGuest, kStackGuessedOrigin}));
  EXPECT_EQ(Merge(CpuMode::kGuestUser, kXen, {}, Patched()),
            (Shape{{kXen}, {}, {}, Origin::kXenForGuest, kStackGuessedOrigin}));
}

TEST(MergeStack, GuestsHaveTheirAddressOnly) {
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kKernel, {K, U, kUser, kUserCaller}, Patched()),
            (Shape{{}, {kKernel}, {}, Origin::kGuestKernel, 0}));
  EXPECT_EQ(Merge(CpuMode::kGuestUser, kUser, {U, kUserCaller}, Patched()),
            (Shape{{}, {}, {kUser}, Origin::kGuestUser, 0}));
  // An HVM guest may use Xen's range for itself: then the kernel part does not begin with the address.
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kXen, {K}, Patched()),
            (Shape{{}, {kXen}, {}, Origin::kGuestKernel, 0}));
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kXen, {K, kXenCaller}, Patched()).origin, Origin::kGuestKernel);
}

// Seen in the lab: after the PMU had sampled a guest, every sample of cpu-clock on that CPU came with its
// mode and address. The markers are written for dom0's own registers.
TEST(MergeStack, AGuestLeftOverFromThePmuIsNotBelievedOfATimer) {
  MergeOptions options = Patched();
  options.software_clock_on_xen = true;
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kKernel, {K}, options),
            (Shape{{}, {}, {}, Origin::kDom0Kernel, kStackGuessedOrigin}));
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kKernel, {K, U}, options),
            (Shape{{}, {}, {}, Origin::kDom0Kernel, kStackGuessedOrigin}));
  EXPECT_EQ(Merge(CpuMode::kGuestUser, kUser, {U}, options),
            (Shape{{}, {}, {}, Origin::kDom0User, kStackGuessedOrigin}));
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kKernel, {}, options),
            (Shape{{}, {}, {}, Origin::kUnknown, kStackGuessedOrigin}));
  EXPECT_EQ(Merge(CpuMode::kKernel, kKernel, {K, kKernel, kKernelCaller}, options),
            (Shape{{}, {kKernel, kKernelCaller}, {}, Origin::kDom0Kernel, 0}));
}

// The same with the interrupted address beside the sample's own: it is dom0's, by which half it lies in.
TEST(MergeStack, TheInterruptedAddressStandsForATimersStaleGuest) {
  MergeOptions options = Patched();
  options.software_clock_on_xen = true;
  const std::vector<uint64_t> chain = {K, U};
  perf::Sample sample;
  sample.mode = CpuMode::kGuestKernel;
  sample.chain = chain;
  MergedStack stack;
  sample.interrupted_ip = kKernel;
  MergeStack(sample, options, &stack);
  EXPECT_EQ(stack.origin, Origin::kDom0Kernel);
  EXPECT_EQ(stack.flags, kStackComplete);
  ASSERT_EQ(stack.kernel_frames, 1);
  EXPECT_EQ(stack.size(), 1);
  EXPECT_EQ(stack.addresses[0], kKernel);
  sample.interrupted_ip = kUser;
  MergeStack(sample, options, &stack);
  EXPECT_EQ(stack.origin, Origin::kDom0User);
  EXPECT_EQ(stack.flags, kStackNoUserCallers);
  ASSERT_EQ(stack.user_frames, 1);
  EXPECT_EQ(stack.size(), 1);
  EXPECT_EQ(stack.addresses[0], kUser);
  // Under the PMU a guest is a guest.
  options.software_clock_on_xen = false;
  MergeStack(sample, options, &stack);
  EXPECT_EQ(stack.origin, Origin::kGuestKernel);
}

TEST(MergeStack, GuestFramesOfTheKvmSeries) {
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kKernel,
                  {perf::kContextGuestKernel, kKernel, kKernelCaller, U, kUser}, Patched()),
            (Shape{{}, {kKernel, kKernelCaller}, {}, Origin::kGuestKernel, 0}));
  EXPECT_EQ(Merge(CpuMode::kGuestUser, kUser, {perf::kContextGuestUser, kUser, kUserCaller}, Patched()),
            (Shape{{}, {}, {kUser, kUserCaller}, Origin::kGuestUser, 0}));
}

TEST(MergeStack, Dom0KernelWithAndWithoutItsLeaf) {
  const Shape whole{{}, {kKernel, kKernelCaller}, {kUser}, Origin::kDom0Kernel, 0};
  EXPECT_EQ(Merge(CpuMode::kKernel, kKernel, {K, kKernel, kKernelCaller, U, kUser}, Patched()), whole);
  EXPECT_EQ(Merge(CpuMode::kKernel, kKernel, {K, kKernelCaller, U, kUser}, Patched()), whole);
  EXPECT_EQ(Merge(CpuMode::kKernel, kKernel, {}, Patched()),
            (Shape{{}, {kKernel}, {}, Origin::kDom0Kernel, 0}));
  // The leaf is missing and so is the rest of the kernel part.
  EXPECT_EQ(Merge(CpuMode::kKernel, kKernel, {K, U, kUser}, Patched()),
            (Shape{{}, {kKernel}, {kUser}, Origin::kDom0Kernel, 0}));
}

TEST(MergeStack, Dom0UserCannotBeWalkedOnPv) {
  EXPECT_EQ(Merge(CpuMode::kUser, kUser, {U, kUser}, Patched()),
            (Shape{{}, {}, {kUser}, Origin::kDom0User, kStackNoUserCallers}));
  MergeOptions plain;
  EXPECT_EQ(Merge(CpuMode::kUser, kUser, {U, kUser}, plain), (Shape{{}, {}, {kUser}, Origin::kDom0User, 0}));
  EXPECT_EQ(Merge(CpuMode::kUser, kUser, {U, kUser, kUserCaller}, plain),
            (Shape{{}, {}, {kUser, kUserCaller}, Origin::kDom0User, 0}));
}

TEST(MergeStack, UnpatchedXenNeverShowsABogusDom0Stack) {
  EXPECT_EQ(Merge(CpuMode::kKernel, kXen, {K, kXen, U, kUser, kUserCaller}, Unpatched()),
            (Shape{{kXen}, {}, {}, Origin::kUnknown, 0}));
  EXPECT_EQ(Merge(CpuMode::kKernel, kXen, {K, U, kUser}, Unpatched()),
            (Shape{{kXen}, {}, {}, Origin::kUnknown, 0}));
  EXPECT_EQ(Merge(CpuMode::kKernel, kIdle, {K, kIdle}, Unpatched()),
            (Shape{{kIdle}, {}, {}, Origin::kXenIdle, 0}));
  // Counting only while dom0 runs, Xen's time is dom0's.
  MergeOptions counted = Unpatched();
  counted.dom0_counted_only = true;
  EXPECT_EQ(Merge(CpuMode::kKernel, kXen, {K, kXen, U, kUser}, counted),
            (Shape{{kXen}, {}, {kUser}, Origin::kXenForDom0, 0}));
}

TEST(MergeStack, PatchedKernelOnUnpatchedXenIsNotBelieved) {
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kXen, {K, kXen}, Unpatched()),
            (Shape{{kXen}, {}, {}, Origin::kUnknown, 0}));
  // Callers in Xen are proof enough.
  EXPECT_EQ(Merge(CpuMode::kGuestKernel, kXen, {K, kXen, kXenCaller}, Unpatched()).origin,
            Origin::kXenForGuest);
}

TEST(MergeStack, LeafStoredTwiceIsDropped) {
  EXPECT_EQ(Merge(CpuMode::kKernel, kXen, {K, kXen, kXen, kKernel}, Patched()),
            (Shape{{kXen}, {kKernel}, {}, Origin::kXenForDom0, 0}));
  // Recursion deeper down is real.
  EXPECT_EQ(Merge(CpuMode::kKernel, kXen, {K, kXen, kXenCaller, kXenCaller}, Patched()).hypervisor.size(),
            3u);
}

TEST(MergeStack, MarkersAreNeverFrames) {
  for (uint64_t marker : {perf::kContextHypervisor, perf::kContextGuest, perf::kContextMax}) {
    EXPECT_EQ(Merge(CpuMode::kKernel, kKernel, {marker, K, kKernel, marker, kKernelCaller}, Patched()),
              (Shape{{}, {kKernel, kKernelCaller}, {}, Origin::kDom0Kernel, 0}))
        << absl::StrCat(absl::Hex(marker));
  }
}

TEST(MergeStack, AUserStackMayHoldAnything) {
  // Words of a user stack that look like a marker, a kernel address, a Xen address.
  const std::vector<uint64_t> chain = {K, kKernel, U, kUser, K, kKernelCaller, kXen, 0x2020202020202020};
  MergeOptions options = Patched();
  options.keep_unmapped_callers = true;
  EXPECT_EQ(Merge(CpuMode::kKernel, kKernel, chain, options),
            (Shape{{}, {kKernel}, {kUser, kKernelCaller, kXen, 0x2020202020202020}, Origin::kDom0Kernel, 0}));
  EXPECT_EQ(Merge(CpuMode::kKernel, kKernel, chain, Patched()),
            (Shape{{}, {kKernel}, {kUser, 0}, Origin::kDom0Kernel, 0}));
}

TEST(MergeStack, ACallerNobodyCanReturnToEndsTheStack) {
  for (const uint64_t nobody :
       {uint64_t{0}, uint64_t{1}, uint64_t{0xfff}, uint64_t{1} << 56, ~uint64_t{0} - 4096}) {
    EXPECT_EQ(Merge(CpuMode::kUser, kUser, {U, kUser, kUserCaller, nobody, kUserCaller}, Patched()),
              (Shape{{}, {}, {kUser, kUserCaller, 0}, Origin::kDom0User, 0}));
  }
  // The lowest and the highest that somebody may.
  const uint64_t low = 0x1000, high = (uint64_t{1} << 56) - 1;
  EXPECT_EQ(Merge(CpuMode::kUser, kUser, {U, kUser, low, high}, Patched()),
            (Shape{{}, {}, {kUser, low, high}, Origin::kDom0User, 0}));
  // A register is believed.
  EXPECT_EQ(Merge(CpuMode::kUser, 0, {U, 0, kUserCaller}, Patched()),
            (Shape{{}, {}, {0, kUserCaller}, Origin::kDom0User, 0}));
  // A guest's addresses are its own affair.
  EXPECT_EQ(Merge(CpuMode::kGuestUser, kUser, {perf::kContextGuestUser, kUser, 1}, Patched()),
            (Shape{{}, {}, {kUser, 1}, Origin::kGuestUser, 0}));
}

TEST(MergeStack, RunsAreTakenAsTheirEntriesOneByOne) {
  // A marker before each entry says nothing new and keeps entries from being taken together.
  std::mt19937_64 random(1);
  const uint64_t pool[] = {kXen, kKernel, kKernelCaller, kUser, kUserCaller, 0, 1, 0x2020202020202020};
  const CpuMode modes[] = {CpuMode::kKernel,      CpuMode::kUser,      CpuMode::kHypervisor,
                           CpuMode::kGuestKernel, CpuMode::kGuestUser, CpuMode::kUnknown};
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint64_t> plain, marked;
    uint64_t context = 0;
    const size_t entries = random() % (round % 100 == 0 ? 300 : 12);
    for (size_t i = 0; i < entries; ++i) {
      if (i == 0 || random() % 5 == 0) {
        context = random() % 2 == 0 ? K : U;
        plain.push_back(context);
      }
      plain.push_back(pool[random() % std::size(pool)]);
      marked.push_back(context);
      marked.push_back(plain.back());
    }
    MergeOptions options = random() % 2 == 0 ? Patched() : Unpatched();
    options.keep_unmapped_callers = random() % 2 == 0;
    const CpuMode mode = modes[random() % std::size(modes)];
    const uint64_t ip = random() % 2 == 0 && plain.size() > 1 ? plain[1] : pool[random() % std::size(pool)];
    ASSERT_EQ(Merge(mode, ip, plain, options), Merge(mode, ip, marked, options)) << "round " << round;
  }
}

TEST(MergeStack, TruncationIsFlaggedAtTheKernelsLimit) {
  MergeOptions options = Patched();
  options.max_stack = 4;
  EXPECT_EQ(Merge(CpuMode::kKernel, kKernel, {K, kKernel, kKernelCaller, U, kUser}, options).flags, 0);
  EXPECT_EQ(
      Merge(CpuMode::kKernel, kKernel, {K, kKernel, kKernelCaller, U, kUser, kUserCaller}, options).flags,
      kStackTruncated);
}

TEST(MergeStack, ALongerChainThanThereIsRoomForIsCutAndFlagged) {
  std::vector<uint64_t> chain = {K};
  for (int i = 0; i < 1000; ++i) chain.push_back(kKernel + i * 16);
  MergeOptions options = Patched();
  options.max_stack = 5000;
  const Shape shape = Merge(CpuMode::kKernel, kKernel, chain, options);
  EXPECT_EQ(shape.kernel.size(), static_cast<size_t>(MergedStack::kMaxFrames));
  EXPECT_EQ(shape.flags, kStackTruncated);
}

TEST(MergeStack, KernelModeWithAUserAddressIsUser) {
  EXPECT_EQ(Merge(CpuMode::kKernel, kUser, {K, U, kUser, kUserCaller}, Patched()),
            (Shape{{}, {}, {kUser, kUserCaller}, Origin::kDom0User, 0}));
}

TEST(MergeStack, AnUnknownModeIsAnUnknownOriginButKeepsItsFrames) {
  EXPECT_EQ(Merge(CpuMode::kUnknown, kKernel, {K, kKernel}, Patched()),
            (Shape{{}, {kKernel}, {}, Origin::kUnknown, 0}));
}

}  // namespace
}  // namespace xenprof::merge
