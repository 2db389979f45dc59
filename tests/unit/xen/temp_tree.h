// A folder of files that goes away with its object: a fake root for /sys, /proc, /etc, /boot.
#ifndef TESTS_UNIT_XEN_TEMP_TREE_H_
#define TESTS_UNIT_XEN_TEMP_TREE_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace xenprof::xen {

inline constexpr char kBoot[] = "01234567-89ab-cdef-0123-456789abcdef";  // as /proc has it

class TempTree {
 public:
  TempTree() {
    std::string name = (std::filesystem::temp_directory_path() / "xenprof-test-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~TempTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  const std::string& root() const { return root_; }
  // `path` starts with a slash; folders are made.
  std::string Write(const std::string& path, const std::string& text) const {
    const std::string full = root_ + path;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::ofstream(full, std::ios::binary) << text;
    return full;
  }
  std::string Folder(const std::string& path) const {
    std::filesystem::create_directories(root_ + path);
    return root_ + path;
  }
  std::string Read(const std::string& path) const {
    std::ifstream file(root_ + path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  bool Exists(const std::string& path) const { return std::filesystem::exists(root_ + path); }

 private:
  std::string root_;
};

}  // namespace xenprof::xen

#endif  // TESTS_UNIT_XEN_TEMP_TREE_H_
