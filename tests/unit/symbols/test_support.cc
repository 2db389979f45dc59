#include "tests/unit/symbols/test_support.h"

#include <lzma.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

namespace xenprof::symbols {

FakeRoot::FakeRoot() {
  std::string name = (std::filesystem::temp_directory_path() / "xenprof-symbols-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

FakeRoot::~FakeRoot() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string FakeRoot::Write(const std::string& name, const std::string& bytes) const {
  const std::string full = path_ + name;
  std::filesystem::create_directories(std::filesystem::path(full).parent_path());
  std::ofstream(full, std::ios::binary | std::ios::trunc) << bytes;
  return full;
}

void FakeRoot::Link(const std::string& name, const std::string& target) const {
  const std::string full = path_ + name;
  std::filesystem::create_directories(std::filesystem::path(full).parent_path());
  std::filesystem::create_symlink(target, full);
}

LiveSymbolizerOptions Options(const FakeRoot& root) {
  LiveSymbolizerOptions options;
  options.root = root.path();
  return options;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

std::string TestData(const std::string& name) { return std::string(XENPROF_TEST_DATA) + "/symbols/" + name; }

std::string Xz(const std::string& bytes) {
  std::string packed(lzma_stream_buffer_bound(bytes.size()), '\0');
  size_t size = 0;
  EXPECT_EQ(
      lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(bytes.data()),
                              bytes.size(), reinterpret_cast<uint8_t*>(packed.data()), &size, packed.size()),
      LZMA_OK);
  packed.resize(size);
  return packed;
}

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = packed.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string NameAt(const Resolved& resolved, uint64_t address) {
  for (const Function& function : resolved.functions) {
    if (address - function.start < function.size) return function.name;
  }
  return "";
}

MappingInfo KernelMapping(const std::string& name) {
  MappingInfo mapping;
  mapping.kind = FrameKind::kDom0Kernel;
  mapping.name = name;
  return mapping;
}

MappingInfo XenMapping(const std::string& build_id) {
  MappingInfo mapping;
  mapping.kind = FrameKind::kHypervisor;
  mapping.name = "[xen]";
  mapping.build_id = build_id;
  return mapping;
}

MappingInfo FileMapping(const std::string& path, const std::string& build_id) {
  MappingInfo mapping;
  mapping.kind = FrameKind::kDom0User;
  mapping.name = path;
  mapping.build_id = build_id;
  mapping.is_file = true;
  return mapping;
}

}  // namespace xenprof::symbols
