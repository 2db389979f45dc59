// main() of the benchmark programs. Unlike Google Benchmark's own it fails when a benchmark reports an error,
// and knows `--smoke`: everything once, with few samples.
#include "bench_main.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "benchmark/benchmark.h"

namespace xenprof::bench {
namespace {

bool smoke = false;

class Reporter : public benchmark::ConsoleReporter {
 public:
  Reporter() : ConsoleReporter(isatty(STDOUT_FILENO) ? OO_ColorTabular : OO_None) {}
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) failed_ |= run.error_occurred;
    ConsoleReporter::ReportRuns(runs);
  }
  bool failed() const { return failed_; }

 private:
  bool failed_ = false;
};

}  // namespace

bool Smoke() { return smoke; }
int Samples(int wanted) { return smoke ? std::min(wanted, 4096) : wanted; }

}  // namespace xenprof::bench

int main(int argc, char** argv) {
  std::vector<char*> arguments;
  char short_runs[] = "--benchmark_min_time=0.0001";
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--smoke") == 0) {
      xenprof::bench::smoke = true;
      arguments.push_back(short_runs);
    } else {
      arguments.push_back(argv[i]);
    }
  }
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  xenprof::bench::Reporter reporter;
  if (benchmark::RunSpecifiedBenchmarks(&reporter) == 0) return 1;
  return reporter.failed() ? 1 : 0;
}
