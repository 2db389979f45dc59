// What the tests of symbols share: folders that look like a machine's root, and ELF files as bytes.
#ifndef XENPROF_TESTS_UNIT_SYMBOLS_TEST_SUPPORT_H_
#define XENPROF_TESTS_UNIT_SYMBOLS_TEST_SUPPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "xenprof/symbols/live_symbolizer.h"
#include "xenprof/symbols/symbolizer.h"

namespace xenprof::symbols {

// A temporary folder that stands for "/"; removed with everything in it at the end.
class FakeRoot {
 public:
  FakeRoot();
  ~FakeRoot();
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  const std::string& path() const { return path_; }
  // Writes `bytes` to `name` ("/proc/kallsyms") below the folder, making folders as needed. Returns the full
  // path.
  std::string Write(const std::string& name, const std::string& bytes) const;
  void Link(const std::string& name, const std::string& target) const;

 private:
  std::string path_;
};

// Of a symbolizer that finds its files in `root`.
LiveSymbolizerOptions Options(const FakeRoot& root);

std::string ReadFile(const std::string& path);
std::string TestData(const std::string& name);  // full path of tests/data/symbols/NAME
std::string Xz(const std::string& bytes);
std::string Gzip(const std::string& bytes);

// Name of the function of `resolved` that holds `address`, or "".
std::string NameAt(const Resolved& resolved, uint64_t address);

MappingInfo KernelMapping(const std::string& name = "[kernel]");
MappingInfo XenMapping(const std::string& build_id = "");
MappingInfo FileMapping(const std::string& path, const std::string& build_id = "");

}  // namespace xenprof::symbols

#endif  // XENPROF_TESTS_UNIT_SYMBOLS_TEST_SUPPORT_H_
