// A library whose symbols and debug information the tests look at: functions of every kind that names come
// from.
#include "sample.h"

#include <unistd.h>

#include <cstring>

namespace sample {

template <typename T>
__attribute__((noinline)) T Exported(T value) {
  volatile int cell = 3;
  return value + Deeper(&cell, static_cast<int>(value));
}
template int Exported<int>(int);
template long Exported<long>(long);

}  // namespace sample

namespace {

__attribute__((noinline)) int Hidden(int value) {
  volatile int cell = value;
  return sample::Deepest(&cell, 7) + static_cast<int>(getpid());  // through a stub of the linkage table
}

int ChosenHere(int value) { return value * 3; }

}  // namespace

extern "C" {

using Chosen = int (*)(int);
Chosen sample_choose() { return ChosenHere; }
int sample_chosen(int value) __attribute__((ifunc("sample_choose")));

__attribute__((noinline)) int sample_plain(int value) { return Hidden(value) + 1; }

// Written in assembler, without a size.
void sample_sizeless();
asm(".text\n"
    ".globl sample_sizeless\n"
    "sample_sizeless:\n"
    "  nop\n"
    "  nop\n"
    "  nop\n"
    "  ret\n");

// Addresses for the test, which loads this library.
const void* sample_address(const char* of) {
  if (std::strcmp(of, "hidden") == 0) return reinterpret_cast<const void*>(&Hidden);
  if (std::strcmp(of, "plain") == 0) return reinterpret_cast<const void*>(&sample_plain);
  if (std::strcmp(of, "exported") == 0) return reinterpret_cast<const void*>(&sample::Exported<int>);
  if (std::strcmp(of, "chosen") == 0) return reinterpret_cast<const void*>(&ChosenHere);
  if (std::strcmp(of, "sizeless") == 0) return reinterpret_cast<const void*>(&sample_sizeless);
  return nullptr;
}

int sample_all(int value) {
  sample_sizeless();
  return sample_plain(value) + sample_chosen(value) + sample::Exported(value) +
         static_cast<int>(sample::Exported(2L));
}
}
