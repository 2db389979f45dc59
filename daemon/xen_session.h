// Everything the daemon does because there is a Xen below it. On a plain Linux machine all of it is a no-op
// that says so.
#ifndef DAEMON_XEN_SESSION_H_
#define DAEMON_XEN_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "chunk.pb.h"
#include "daemon/collector.h"
#include "daemon/config.h"
#include "xenprof/merge/assembler.h"
#include "xenprof/merge/batch.h"
#include "xenprof/xen/facts.h"
#include "xenprof/xen/hypervisor.h"
#include "xenprof/xen/mode.h"
#include "xenprof/xen/vpmu.h"

namespace xenprof::daemon {

class XenSession {
 public:
  explicit XenSession(const Config& config);
  ~XenSession();

  // Looks at the host and, on Xen, turns the vPMU on. Before events are opened.
  void Prepare();
  // Says what samples will show, given the event that was opened ("cycles" or "cpu-clock") and why it is not
  // cycles.
  void EventsOpened(const std::string& event, const std::string& problem);
  // Puts the vPMU back. After all events are closed.
  void Restore();

  bool on_xen() const { return host_.on_xen; }
  proto::Mode mode() const;
  const proto::HypervisorFacts& facts() const { return facts_; }
  merge::MergeOptions merge_options() const;
  void SetIdleRanges(std::vector<std::pair<uint64_t, uint64_t>> ranges) { idle_ranges_ = std::move(ranges); }
  merge::TextRange hypervisor_text() const;

  // Holds what samples have shown against the mode. True when the mode changed.
  bool CheckMode(const std::vector<Collector::Evidence>& evidences, uint64_t now_ns);
  // Asks Xen again when a domain came or went, or `due` says it is time to anyway. True when the facts changed.
  bool CheckFacts(bool due);

  // Said once each: (is a warning, text).
  std::vector<std::pair<bool, std::string>> TakeNotes() { return std::exchange(notes_, {}); }

 private:
  const Config config_;
  xen::XenHost host_;
  std::unique_ptr<xen::Hypervisor> hypervisor_;
  std::string open_problem_;
  std::unique_ptr<xen::VpmuControl> vpmu_;
  xen::VpmuOutcome outcome_;
  xen::HypervisorFacts collected_;
  proto::HypervisorFacts facts_;
  std::unique_ptr<xen::ModeConfirmer> confirmer_;
  std::vector<Collector::Evidence> told_;  // to the confirmer so far
  std::vector<std::pair<uint64_t, uint64_t>> idle_ranges_;
  std::vector<std::pair<bool, std::string>> notes_;
};

// `xenprofd --restore-vpmu`: what was done, for people.
absl::StatusOr<std::string> RestoreVpmu(const Config& config);
// `xenprofd --vpmu-boot`.
std::string SetVpmuAtBoot(const Config& config);

}  // namespace xenprof::daemon

#endif  // DAEMON_XEN_SESSION_H_
