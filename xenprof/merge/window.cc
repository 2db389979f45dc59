#include "xenprof/merge/window.h"

namespace xenprof::merge {

size_t Window::samples() const {
  size_t total = 0;
  for (const CpuColumns& cpu : cpus) total += cpu.time_ns.size();
  return total;
}

void Window::Clear() {
  start_ns = end_ns = 0;
  for (CpuColumns& cpu : cpus) {
    cpu.time_ns.clear();
    cpu.stack.clear();
    cpu.task.clear();
    cpu.sampled_ns = 0;
  }
  incidents.clear();
}

}  // namespace xenprof::merge
