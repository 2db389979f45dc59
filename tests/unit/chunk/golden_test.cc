// Files that must stay readable, and readers that are not ours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "test_support.h"

namespace xenprof::chunk {
namespace {

const std::string kData = XENPROF_TEST_DATA;

std::string Describe(const Contents& contents) {
  std::string text;
  for (const PlainSample& sample : contents.samples) {
    absl::StrAppend(&text, sample.cpu, " ", sample.time_ns, " ", OriginName(sample.origin));
    for (const std::string& frame : sample.frames) absl::StrAppend(&text, " ", frame);
    text += "\n";
  }
  return text;
}

std::string OutputOf(const std::string& command, int* status) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) out.append(buffer, got);
  *status = pclose(pipe);
  return out;
}

// Written by format version 1. A change of the format that cannot read it needs a new version, and still has
// to read this one. XENPROF_WRITE_GOLDEN=1 makes the file anew.
TEST(Golden, Version1) {
  const std::string path = kData + "/chunk/version1.xenprof";
  const std::string expected_path = kData + "/chunk/version1.txt";
  if (getenv("XENPROF_WRITE_GOLDEN") != nullptr) {
    Host host(7, 2);
    MakeChunk(path, &host, 2, 500000000, 20000000, {.replace = true});
    WriteFile(expected_path, Describe(ReadAll(path)));
  }
  const Contents contents = ReadAll(path);
  EXPECT_EQ(Describe(contents), ReadFile(expected_path));
  EXPECT_EQ(contents.samples.size(), 100u);
  EXPECT_EQ(contents.header.format_version(), 1u);
  EXPECT_EQ(contents.trailer.samples(), contents.samples.size());
  EXPECT_EQ(std::string(contents.decoder->FunctionsOf(3)[0].name), "/usr/bin/prog_63");
  EXPECT_EQ(contents.decoder->domains()[1].name(), "guest");
  EXPECT_THAT(Verify(path)->problems, testing::IsEmpty());
}

// tests/xen/chunkread.py knows proto/chunk.proto and nothing of this library.
TEST(Golden, AnIndependentReaderSeesTheSame) {
  int status = 0;
  OutputOf("python3 -c 'import ctypes.util, sys; sys.exit(sys.version_info < (3, 10))' 2>&1", &status);
  if (status != 0) GTEST_SKIP() << "no python3 of at least 3.10 here";
  TempFolder folder;
  Host host(11, 3);
  const std::string path = MakeChunk(folder / "a.xenprof", &host, 3);
  WriteFile(folder / "print.py",
            "import sys\n"
            "sys.path.insert(0, sys.argv[1])\n"
            "sys.dont_write_bytecode = True\n"
            "import chunkread\n"
            "c = chunkread.Chunk(sys.argv[2])\n"
            "for s in sorted(c.samples, key=lambda s: (s.time_ns, s.cpu)):\n"
            "    stack = c.stacks[s.stack]\n"
            "    frames = [c.frames[f] for f in stack.frames]\n"
            "    print(s.cpu, s.time_ns, stack.origin, *(f'{c.mappings[f.mapping].name}@{f.address}' for f "
            "in frames))\n");
  const std::string out =
      OutputOf(absl::StrCat("python3 ", folder / "print.py", " ", kData, "/../xen ", path, " 2>&1"), &status);
  EXPECT_EQ(status, 0) << out;
  EXPECT_EQ(out, Describe(ReadAll(path)));
}

}  // namespace
}  // namespace xenprof::chunk
