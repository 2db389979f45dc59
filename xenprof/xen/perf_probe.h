// Tries a sampling event for a moment: an open that succeeds proves nothing, samples do.
#ifndef XENPROF_XEN_PERF_PROBE_H_
#define XENPROF_XEN_PERF_PROBE_H_

#include <cstdint>
#include <functional>
#include <string>

namespace xenprof::xen {

struct PerfProbeRequest {
  bool hardware = true;  // cycles, else cpu-clock
  uint32_t cpu = 0;
  // As long as the CPU is kept busy at most; it ends with the first sample.
  uint32_t limit_ms = 200;
};

struct PerfProbeResult {
  int error = 0;                // errno of the open or of the ring's mmap, 0 when both succeeded
  uint64_t count = 0;           // events counted
  uint64_t samples = 0;         // records that arrived
  uint64_t xen_samples = 0;     // of these, with an ip in Xen
  uint32_t max_xen_frames = 0;  // the most Xen frames at the head of one chain
};

using PerfProbe = std::function<PerfProbeResult(const PerfProbeRequest&)>;

// On this machine: one event on one CPU, seen by every task there, with callchains; everything is closed
// again before it returns. Keeps that CPU busy with the calling thread.
PerfProbeResult ProbePerfEvent(const PerfProbeRequest& request);

// What an errno of perf_event_open means here, for people.
std::string ExplainPerfError(int error);

}  // namespace xenprof::xen

#endif  // XENPROF_XEN_PERF_PROBE_H_
