// What the benchmark programs share.
#ifndef XENPROF_TESTS_BENCH_BENCH_MAIN_H_
#define XENPROF_TESTS_BENCH_BENCH_MAIN_H_

namespace xenprof::bench {

// `--smoke` was given: each benchmark only proves that it runs.
bool Smoke();
// A number of samples, cut down for a smoke run.
int Samples(int wanted);

}  // namespace xenprof::bench

#endif  // XENPROF_TESTS_BENCH_BENCH_MAIN_H_
