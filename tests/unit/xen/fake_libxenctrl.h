// libxenctrl and libxenstore played by the test: the module's own source is linked against these functions,
// so that what it makes of each answer and each errno is tested without a Xen.
#ifndef TESTS_UNIT_XEN_FAKE_LIBXENCTRL_H_
#define TESTS_UNIT_XEN_FAKE_LIBXENCTRL_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace xenprof::xen {

struct FakeLibxenctrl {
  int open_error = 0;
  std::map<std::string, int> errors;  // function name: errno it fails with
  int domains = 1;
  uint32_t cpus = 2;
  std::vector<uint32_t> offline;
  uint32_t dom0_vcpus = 2;
  std::string extra = ".5";
  std::string command_line = "vpmu=on";
  std::string build_id = std::string(20, '\x8f');
  std::string console;
  int open_handles = 0;

  void Reset() { *this = FakeLibxenctrl(); }
};
extern FakeLibxenctrl fake_libxenctrl;

}  // namespace xenprof::xen

#endif  // TESTS_UNIT_XEN_FAKE_LIBXENCTRL_H_
