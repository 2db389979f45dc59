// Functions that are inlined into sample.cc: inline frames need a file of their own.
#ifndef XENPROF_TESTS_UNIT_SYMBOLS_SAMPLE_SAMPLE_H_
#define XENPROF_TESTS_UNIT_SYMBOLS_SAMPLE_SAMPLE_H_

namespace sample {

inline __attribute__((always_inline)) int Deepest(volatile int* at, int by) {
  *at = *at * by + 1;
  return *at ^ by;
}

inline __attribute__((always_inline)) int Deeper(volatile int* at, int by) {
  int sum = 0;
  for (int i = 0; i < by; ++i) sum += Deepest(at, i);
  return sum;
}

}  // namespace sample

#endif  // XENPROF_TESTS_UNIT_SYMBOLS_SAMPLE_SAMPLE_H_
