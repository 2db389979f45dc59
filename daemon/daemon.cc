#include "daemon/daemon.h"

#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/clock.h"
#include "daemon/control_server.h"
#include "daemon/log.h"
#include "daemon/recorder.h"
#include "daemon/sealer.h"
#include "daemon/state_dir.h"
#include "daemon/xen_session.h"
#include "xenprof/symbols/live_symbolizer.h"

namespace xenprof::daemon {
namespace {

// A recorder that has not turned for this long hangs: the watchdog is not fed any more.
constexpr uint64_t kHangNs = 30 * kSecondNs;

void SetUpAllocator() {
  // Readers allocate next to nothing, one arena per thread would keep each one's peak, and every arena but
  // the first grows page by page.
  mallopt(M_ARENA_MAX, 1);
  // Freed memory is used again rather than given back and faulted in anew: a page fault costs as much as
  // twenty samples do. The sealer gives back what has become too much.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 8 << 20);
  mallopt(M_TOP_PAD, 256 << 10);
}

UniqueFd BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  // Before any thread begins, so that all inherit it.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

chunk::RetentionLimits LimitsOf(const Config& config) {
  chunk::RetentionLimits limits;
  limits.max_bytes = uint64_t{config.max_mib} << 20;
  if (config.max_age_hours != 0) limits.max_age = absl::Hours(config.max_age_hours);
  limits.min_free_bytes = uint64_t{config.min_free_mib} << 20;
  return limits;
}

// Until a signal ends it.
void Watch(int signals, const Recorder& recorder) {
  uint64_t watchdog_us = 0;
  const bool watched = sd_watchdog_enabled(0, &watchdog_us) > 0;
  const int wait_ms = watched ? static_cast<int>(std::max<uint64_t>(watchdog_us / 3000, 1)) : -1;
  while (true) {
    pollfd wait = {signals, POLLIN, 0};
    poll(&wait, 1, wait_ms);
    signalfd_siginfo info;
    if (read(signals, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGHUP) {
        LogInfo(absl::StrCat("stopping signal=", info.ssi_signo, " by_pid=", info.ssi_pid));
        return;
      }
      LogInfo("SIGHUP: the configuration is read at start only");
    }
    if (watched && NowNs() - recorder.last_turn_ns() < kHangNs) sd_notify(0, "WATCHDOG=1");
  }
}

void LogNotes(XenSession* xen) {
  for (const auto& [warning, text] : xen->TakeNotes()) {
    if (warning) {
      LogWarning(text);
    } else {
      LogInfo(text);
    }
  }
}

}  // namespace

absl::Status RunDaemon(const Config& config) {
  SetUpAllocator();
  UniqueFd signals = BlockSignals();
  if (!signals.valid()) return absl::ResourceExhaustedError("no descriptor left for signals");
  absl::StatusOr<UniqueFd> hold = HoldStateDir(config.state_dir);
  if (!hold.ok()) return hold.status();

  symbols::LiveSymbolizer symbolizer{symbols::LiveSymbolizerOptions()};
  Sealer sealer(config.state_dir, LimitsOf(config), &symbolizer);
  XenSession xen(config);
  Recorder recorder(config, &xen, &symbolizer, &sealer);

  ControlOptions control;
  control.path = config.socket;
  control.group = config.group;
  control.max_clients = config.max_clients;
  ControlCalls calls;
  calls.get_status = [&](auto done) { recorder.GetStatus(std::move(done)); };
  calls.snapshot = [&](uint64_t future_ns, uint64_t past_ns, bool progress, auto done) {
    recorder.Snapshot(future_ns, past_ns, progress, std::move(done));
  };
  calls.set_frequency = [&](uint32_t hz, const std::string& who, auto done) {
    recorder.SetFrequency(hz, who, std::move(done));
  };
  calls.samples = [&] { return recorder.samples(); };
  ControlServer server(control, std::move(calls));
  // Before anything of the system is touched: another daemon may be there.
  absl::Status listening = server.Listen();
  if (!listening.ok()) return listening;

  xen.Prepare();
  absl::Status opened = recorder.Open();
  if (!opened.ok()) {
    xen.Restore();
    LogNotes(&xen);
    return opened;
  }
  sealer.Start();
  recorder.Start();
  server.Start();
  sd_notify(0, "READY=1\nSTATUS=collecting");
  Watch(signals.get(), recorder);

  sd_notify(0, "STOPPING=1\nSTATUS=writing what is left");
  recorder.Stop();
  xen.Restore();
  LogNotes(&xen);
  sealer.Stop();
  server.Stop();
  LogInfo("stopped");
  return absl::OkStatus();
}

}  // namespace xenprof::daemon
