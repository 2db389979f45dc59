// Gives every file of a corpus to its fuzz target, and many variations of each: what a fuzzer found stays
// found where none can be built.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<std::string> Corpus() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(XENPROF_CORPUS)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

void RunTarget(const std::string& bytes) {
  // A copy of exactly that size, so that a sanitizer sees the first byte read behind it.
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

TEST(Corpus, EveryFile) {
  const std::vector<std::string> corpus = Corpus();
  ASSERT_GE(corpus.size(), 2u) << XENPROF_CORPUS;
  for (const std::string& bytes : corpus) RunTarget(bytes);
}

TEST(Corpus, VariationsOfEveryFile) {
  uint64_t state = 88172645463325252;
  const auto random = [&](uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
  };
  for (const std::string& bytes : Corpus()) {
    for (int i = 0; i < 3000; ++i) {
      std::string changed = bytes;
      for (uint64_t changes = 1 + random(4); changes > 0 && !changed.empty(); --changes) {
        const size_t at = 1 + random(changed.size());
        if (at >= changed.size()) continue;
        switch (random(5)) {
          case 0:
            changed[at] = static_cast<char>(changed[at] ^ (1 << random(8)));
            break;
          case 1:
            changed[at] = static_cast<char>(random(256));
            break;
          case 2:
            changed.erase(at, 1 + random(8));
            break;
          case 3:
            changed.insert(at, changed.substr(1 + random(changed.size() - 1), random(16)));
            break;
          case 4:
            changed[at] = static_cast<char>("\x00\x7f\x80\xff"[random(4)]);
            break;
        }
      }
      RunTarget(changed);
    }
  }
}

}  // namespace
