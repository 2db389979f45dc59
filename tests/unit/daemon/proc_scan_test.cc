#include "daemon/proc_scan.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace xenprof::daemon {
namespace {

namespace fs = std::filesystem;

class ProcScanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/proc_scan_XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    root_ = path;
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << text;
  }
  // proc(5): pid (comm) state ppid pgrp session tty tpgid flags minflt ... num_threads is field 20.
  static std::string Stat(uint32_t pid, const std::string& comm, uint64_t flags, int threads) {
    return absl::StrCat(pid, " (", comm, ") S 1 1 1 0 -1 ", flags, " 0 0 0 0 0 0 0 0 20 0 ", threads,
                        " 0 12345 0 0\n");
  }

  struct Thread {
    uint32_t pid;
    std::string comm;
    bool kernel;
  };
  std::map<uint32_t, Thread> threads_;
  std::vector<perf::SidebandEvent> mappings_;

  ProcScanReport Scan(bool build_ids = true) {
    ProcScanOptions options;
    options.proc = root_.string();
    options.time_ns = 77;
    options.build_ids = build_ids;
    absl::StatusOr<ProcScanReport> report = ScanProcesses(
        options,
        [this](uint32_t pid, uint32_t tid, absl::string_view comm, bool kernel) {
          threads_[tid] = {pid, std::string(comm), kernel};
        },
        [this](const perf::SidebandEvent& mmap) { mappings_.push_back(mmap); });
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : ProcScanReport();
  }

  fs::path root_;
};

// A 64-bit ELF file of nothing but a note.
std::string ElfWithBuildId(const std::string& id) {
  Elf64_Ehdr header = {};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  Elf64_Phdr segments[2] = {};
  segments[0].p_type = PT_LOAD;
  segments[1].p_type = PT_NOTE;
  segments[1].p_offset = sizeof(header) + sizeof(segments);
  const Elf64_Nhdr note = {4, static_cast<Elf64_Word>(id.size()), NT_GNU_BUILD_ID};
  segments[1].p_filesz = sizeof(note) + 4 + id.size();
  segments[1].p_align = 4;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(reinterpret_cast<const char*>(segments), sizeof(segments));
  bytes.append(reinterpret_cast<const char*>(&note), sizeof(note));
  bytes.append("GNU\0", 4).append(id);
  return bytes;
}

TEST_F(ProcScanTest, ReadsProcessesThreadsAndExecutableMappings) {
  Write("1/stat", Stat(1, "init", 0x400100, 1));
  Write("1/maps",
        "55a0c0000000-55a0c0010000 r--p 00000000 fe:01 1234                       /sbin/init\n"
        "55a0c0010000-55a0c0050000 r-xp 00010000 fe:01 1234                       /sbin/init\n"
        "55a0c1000000-55a0c1021000 rw-p 00000000 00:00 0                          [heap]\n"
        "7f0000000000-7f0000100000 r-xp 00028000 103:02 99                        /usr/lib/a b (deleted)\n"
        "7f0000200000-7f0000201000 rwxp 00000000 00:00 0 \n"
        "7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]\n"
        "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n");
  Write("2/stat", Stat(2, "kthreadd", 0x208040, 1));
  Write("2/maps", "");
  Write("30/stat", Stat(30, "a (b) c) d", 0, 3));
  Write("30/maps", "");
  Write("30/task/30/comm", "ignored\n");
  Write("30/task/31/comm", "worker one\n");
  Write("30/task/32/comm", "worker two\n");
  Write("self/stat", Stat(99, "not a number", 0, 1));
  Write("meminfo", "MemTotal: 1 kB\n");

  const ProcScanReport report = Scan(false);
  EXPECT_EQ(report.processes, 2u);
  EXPECT_EQ(report.kernel_threads, 1u);
  EXPECT_EQ(report.threads, 2u);
  ASSERT_EQ(threads_.size(), 5u);
  EXPECT_EQ(threads_[1].comm, "init");
  EXPECT_FALSE(threads_[1].kernel);
  EXPECT_EQ(threads_[2].comm, "kthreadd");
  EXPECT_TRUE(threads_[2].kernel);
  EXPECT_EQ(threads_[30].comm, "a (b) c) d");
  EXPECT_EQ(threads_[31].comm, "worker one");
  EXPECT_EQ(threads_[32].pid, 30u);

  ASSERT_EQ(mappings_.size(), 4u);
  EXPECT_EQ(mappings_[0].name, "/sbin/init");
  EXPECT_EQ(mappings_[0].address, 0x55a0c0010000u);
  EXPECT_EQ(mappings_[0].length, 0x40000u);
  EXPECT_EQ(mappings_[0].page_offset, 0x10000u);
  EXPECT_EQ(mappings_[0].device_major, 0xfeu);
  EXPECT_EQ(mappings_[0].device_minor, 1u);
  EXPECT_EQ(mappings_[0].inode, 1234u);
  EXPECT_EQ(mappings_[0].time_ns, 77u);
  EXPECT_EQ(mappings_[0].pid, 1u);
  EXPECT_TRUE(mappings_[0].exec);
  EXPECT_EQ(mappings_[1].name, "/usr/lib/a b (deleted)");
  EXPECT_EQ(mappings_[1].device_major, 0x103u);
  EXPECT_EQ(mappings_[2].name, "");
  EXPECT_EQ(mappings_[3].name, "[vdso]");
}

TEST_F(ProcScanTest, BuildIdsComeFromTheMappedFile) {
  const std::string id = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14";
  Write("7/stat", Stat(7, "x", 0, 1));
  Write("7/maps",
        "00401000-00402000 r-xp 00001000 08:01 5    /bin/x\n"
        "00501000-00502000 r-xp 00001000 08:01 6    /bin/y\n"
        "00601000-00602000 r-xp 00001000 08:01 7    /bin/gone\n"
        "00701000-00702000 r-xp 00001000 08:01 5    /bin/x\n");
  Write("7/map_files/401000-402000", ElfWithBuildId(id));
  Write("7/root/bin/y", ElfWithBuildId("abcd"));
  Scan();
  ASSERT_EQ(mappings_.size(), 4u);
  EXPECT_EQ(mappings_[0].build_id, id);
  EXPECT_EQ(mappings_[0].inode, 0u) << "as the kernel's records: either the one or the other";
  EXPECT_EQ(mappings_[1].build_id, "abcd");
  EXPECT_EQ(mappings_[2].build_id, "");
  EXPECT_EQ(mappings_[2].inode, 7u);
  EXPECT_EQ(mappings_[3].build_id, id) << "of the same file, read once";
}

TEST_F(ProcScanTest, OddLinesAndHalfProcessesAreSkipped) {
  Write("5/stat", "5 (cut off");
  Write("6/stat", "");
  fs::create_directories(root_ / "8");
  Write("9/stat", Stat(9, "ok", 0, 1));
  Write("9/maps",
        "garbage\n"
        "401000-400000 r-xp 00001000 08:01 5 /backwards\n"
        "401000-402000 r-x\n"
        "401000-402000 r-xp zz 08:01 5 /x\n"
        "fffffffffffffffffffff-1 r-xp 0 08:01 5 /x\n"
        "501000-502000 r-xp 00000000 08:01 5 /good\\012name\n"
        "601000-602000 r-xp 00000000 08:01 5");
  const ProcScanReport report = Scan(false);
  EXPECT_EQ(report.processes, 1u);
  ASSERT_EQ(mappings_.size(), 2u);
  EXPECT_EQ(mappings_[0].name, "/good\nname");
  EXPECT_EQ(mappings_[1].name, "");
}

TEST_F(ProcScanTest, VeryLongFilesAreReadInPieces) {
  Write("9/stat", Stat(9, "big", 0, 1));
  std::string maps;
  for (int i = 0; i < 20000; ++i) {
    maps += absl::StrCat(absl::Hex(0x10000000 + i * 0x2000), "-", absl::Hex(0x10001000 + i * 0x2000),
                         " r-xp 00000000 08:01 5                     /usr/lib/some/library/lib", i, ".so\n");
  }
  Write("9/maps", maps);
  Scan(false);
  ASSERT_EQ(mappings_.size(), 20000u);
  EXPECT_EQ(mappings_[19999].name, "/usr/lib/some/library/lib19999.so");
}

TEST_F(ProcScanTest, AMissingProcIsAnError) {
  ProcScanOptions options;
  options.proc = (root_ / "nowhere").string();
  const auto report = ScanProcesses(
      options, [](uint32_t, uint32_t, absl::string_view, bool) {}, [](const perf::SidebandEvent&) {});
  EXPECT_FALSE(report.ok());
}

TEST(ProcScanLive, FindsThisTest) {
  ProcScanOptions options;
  bool me = false, thread = false, code = false;
  std::atomic<bool> stop = false;
  std::thread other([&] {
    pthread_setname_np(pthread_self(), "scanned-thread");
    while (!stop) std::this_thread::yield();
  });
  const uint32_t pid = static_cast<uint32_t>(getpid());
  const uint64_t address = reinterpret_cast<uint64_t>(&BuildIdOfFile);
  absl::StatusOr<ProcScanReport> report = absl::InternalError("");
  for (int i = 0; i < 100 && !thread; ++i) {
    report = ScanProcesses(
        options,
        [&](uint32_t process, uint32_t tid, absl::string_view comm, bool kernel) {
          me = me || (tid == pid && !kernel);
          thread = thread || (process == pid && tid != pid && comm == "scanned-thread");
        },
        [&](const perf::SidebandEvent& mmap) {
          code = code || (mmap.pid == pid && address - mmap.address < mmap.length && !mmap.name.empty());
        });
    ASSERT_TRUE(report.ok()) << report.status();
  }
  stop = true;
  other.join();
  EXPECT_TRUE(me && thread && code);
}

TEST(BuildIdOfFile, HostileFilesGiveNothing) {
  const std::string good = ElfWithBuildId("0123456789");
  char path[] = "/tmp/build_id_XXXXXX";
  const int fd = mkstemp(path);
  unlink(path);
  const auto id_of = [&](const std::string& bytes) {
    EXPECT_EQ(ftruncate(fd, 0), 0);
    EXPECT_EQ(pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return BuildIdOfFile(fd);
  };
  EXPECT_EQ(id_of(good), "0123456789");
  for (size_t size = 0; size < good.size(); ++size) EXPECT_EQ(id_of(good.substr(0, size)), "") << size;
  for (size_t at = 4; at < good.size(); ++at) {
    std::string bent = good;
    bent[at] = static_cast<char>(bent[at] ^ 0xff);
    id_of(bent);  // whatever comes, nothing is read out of bounds
  }
  EXPECT_EQ(id_of("#!/bin/sh\n"), "");
  close(fd);
}

}  // namespace
}  // namespace xenprof::daemon
