// Something to sample on every CPU: on some virtual machines an idle CPU gives a timer event no samples at
// all.
#ifndef XENPROF_TESTS_BUSY_CPUS_H_
#define XENPROF_TESTS_BUSY_CPUS_H_

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace xenprof {

// One spinning thread bound to each CPU this process may use, as long as it lives. At normal priority: other
// work on a CPU is sampled as well.
class BusyCpus {
 public:
  BusyCpus() {
    cpu_set_t usable;
    CPU_ZERO(&usable);
    sched_getaffinity(0, sizeof(usable), &usable);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &usable)) continue;
      threads_.emplace_back([this, cpu] {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
        setpriority(PRIO_PROCESS, 0, 19);  // of this thread alone on Linux
        while (!stop_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~BusyCpus() {
    stop_.store(true, std::memory_order_relaxed);
    for (std::thread& thread : threads_) thread.join();
  }
  BusyCpus(const BusyCpus&) = delete;
  BusyCpus& operator=(const BusyCpus&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace xenprof

#endif  // XENPROF_TESTS_BUSY_CPUS_H_
