#include "xenprof/chunk/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "test_support.h"
#include "xenprof/chunk/block_encoder.h"
#include "xenprof/chunk/crc32c.h"
#include "xenprof/chunk/utf8.h"

namespace xenprof::chunk {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// RFC 3720, appendix B.4.
TEST(Crc32c, KnownVectors) {
  std::string ascending(32, '\0'), descending(32, '\0');
  for (int i = 0; i < 32; ++i) {
    ascending[i] = static_cast<char>(i);
    descending[i] = static_cast<char>(31 - i);
  }
  const struct {
    std::string data;
    uint32_t crc;
  } kVectors[] = {{"", 0},
                  {"123456789", 0xe3069283},
                  {std::string(32, '\0'), 0x8a9136aa},
                  {std::string(32, '\xff'), 0x62a8ab43},
                  {ascending, 0x46dd794e},
                  {descending, 0x113fdb5c}};
  for (const auto& [data, crc] : kVectors) {
    EXPECT_EQ(Crc32cByTable(data.data(), data.size()), crc);
    EXPECT_EQ(Crc32c(data.data(), data.size()), crc);
    if (HasCrc32cInstruction()) {
      EXPECT_EQ(Crc32cByInstruction(data.data(), data.size()), crc);
    }
  }
}

TEST(Crc32c, BothWaysAgreeAtEveryLengthAndAlignment) {
  if (!HasCrc32cInstruction()) GTEST_SKIP() << "this CPU has no SSE4.2";
  std::string data(200, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 37 + 11);
  for (size_t from = 0; from < 9; ++from) {
    for (size_t bytes = 0; from + bytes <= data.size(); ++bytes) {
      ASSERT_EQ(Crc32cByTable(data.data() + from, bytes), Crc32cByInstruction(data.data() + from, bytes));
    }
  }
}

TEST(Utf8, KeepsWhatIsWellFormed) {
  EXPECT_EQ(ToUtf8("plain"), "plain");
  EXPECT_EQ(ToUtf8("\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\xa5"), "\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\xa5");
  EXPECT_EQ(ToUtf8("a\xff"
                   "b"),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(ToUtf8("\xc0\x80"), "\xef\xbf\xbd\xef\xbf\xbd");                  // overlong
  EXPECT_EQ(ToUtf8("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // a surrogate
  EXPECT_EQ(ToUtf8("\xe2\x82"), "\xef\xbf\xbd\xef\xbf\xbd");                  // cut off
}

TEST(ChunkWriter, RoundTrip) {
  TempFolder folder;
  Host host;
  const std::string path = MakeChunk(folder / "a.xenprof", &host, 4);
  Contents contents = ReadAll(path);
  ASSERT_GT(host.samples().size(), 1000u);
  EXPECT_EQ(contents.samples, host.samples());
  EXPECT_TRUE(contents.sealed);
  EXPECT_EQ(contents.header.magic(), "xenprof");
  EXPECT_EQ(contents.header.chunk_id().size(), 16u);
  EXPECT_EQ(contents.header.host().hostname(), "host");
  EXPECT_FALSE(Exists(path + ".partial"));

  const merge::Tables& tables = contents.decoder->tables();
  ASSERT_EQ(tables.mappings.size(), host.tables().mappings.size());
  for (size_t i = 0; i < tables.mappings.size(); ++i) {
    const merge::Mapping &a = tables.mappings[i], &b = host.tables().mappings[i];
    EXPECT_EQ(std::tie(a.kind, a.name, a.build_id, a.is_file, a.deleted, a.start, a.end, a.pid),
              std::tie(b.kind, b.name, b.build_id, b.is_file, b.deleted, b.start, b.end, b.pid));
  }
  EXPECT_EQ(contents.decoder->domains()[1].name(), "guest");
  EXPECT_EQ(contents.decoder->domains()[1].confidence_percent(), 90u);

  absl::StatusOr<VerifyReport> report = Verify(path);
  ASSERT_TRUE(report.ok()) << report.status();
  for (const Damage& problem : report->problems) ADD_FAILURE() << problem.offset << ": " << problem.reason;
  EXPECT_EQ(report->samples, host.samples().size());
  EXPECT_EQ(report->blocks, 4u);
  EXPECT_GT(report->named_frames, 0u);
  EXPECT_LT(report->named_frames, report->frames);
}

// Guests, commands and files are named by others, in any bytes; protobuf reads back UTF-8 only.
TEST(ChunkWriter, NamesOfAnyBytesCanBeReadBack) {
  const std::string odd = "odd\xff", made_utf8 = "odd\xef\xbf\xbd";
  TempFolder folder;
  Host host;
  merge::Window window = host.Advance(100000000, 10000000);
  merge::Tables tables = host.tables();
  for (merge::Mapping& mapping : tables.mappings) mapping.name = odd;
  for (merge::Task& task : tables.tasks) task.comm = odd;
  DomainColumns domains = *host.domains();
  for (proto::Domain& domain : domains.domains) domain.set_name(odd);
  proto::Header header = MadeUpHeader();
  header.mutable_host()->set_hostname(odd);
  header.add_notes()->set_text(odd);
  header.mutable_hypervisor()->add_domains()->set_name(odd);
  auto writer = ChunkWriter::Create(folder / "a.xenprof", header, {.sync = false});
  ASSERT_TRUE(writer.ok()) << writer.status();
  (*writer)->SetHypervisorFacts(header.hypervisor());
  header.mutable_mode()->set_reason(odd);
  (*writer)->SetMode(header.mode());
  ASSERT_TRUE((*writer)->WriteBlock(window, tables, 0, &domains).ok());
  MadeUpNames names;
  ASSERT_TRUE((*writer)->Seal(tables, &names, proto::Trailer::STOPPED).ok());
  const Contents contents = ReadAll(folder / "a.xenprof");
  EXPECT_EQ(contents.samples.size(), host.samples().size());
  EXPECT_EQ(contents.header.host().hostname(), made_utf8);
  EXPECT_EQ(contents.header.notes(0).text(), made_utf8);
  EXPECT_EQ(contents.header.hypervisor().domains(0).name(), made_utf8);
  EXPECT_EQ(contents.decoder->hypervisor().domains(0).name(), made_utf8);
  EXPECT_EQ(contents.decoder->mode().reason(), made_utf8);
  EXPECT_EQ(contents.decoder->tables().mappings[3].name, made_utf8);
  EXPECT_EQ(contents.decoder->tables().tasks[1].comm, made_utf8);
  EXPECT_EQ(contents.decoder->domains()[1].name(), made_utf8);
  EXPECT_THAT(std::string(contents.decoder->FunctionsOf(3)[0].name), HasSubstr(made_utf8));
}

TEST(ChunkWriter, TrailerCountsWhatWasWritten) {
  TempFolder folder;
  Host host(3, 2);
  absl::StatusOr<std::unique_ptr<ChunkWriter>> writer =
      ChunkWriter::Create(folder / "a.xenprof", MadeUpHeader(), {.sync = false});
  ASSERT_TRUE(writer.ok()) << writer.status();
  merge::Window window = host.Advance(2000000000, 5000000);
  const uint64_t start = window.start_ns;
  window.incidents.push_back(
      {.kind = merge::Incident::Kind::kLost, .cpu = 2, .start_ns = start + 5, .count = 40});
  window.incidents.push_back(
      {.kind = merge::Incident::Kind::kThrottled, .cpu = 0, .start_ns = start + 5, .end_ns = start + 25});
  window.incidents.push_back(
      {.kind = merge::Incident::Kind::kQueueFull, .cpu = -1, .start_ns = start, .count = 3});
  window.incidents.push_back({.kind = merge::Incident::Kind::kGap,
                              .cpu = 0,
                              .start_ns = start,
                              .end_ns = start + 1,
                              .text = "not \xff UTF-8"});
  ASSERT_TRUE((*writer)->WriteBlock(window, host.tables(), 17).ok());
  proto::Mode mode;
  mode.set_kind(proto::Mode::DOM0_ONLY);
  (*writer)->SetMode(mode);
  ASSERT_TRUE((*writer)->WriteBlock(host.Advance(1000000000, 5000000), host.tables(), 18).ok());
  ASSERT_TRUE((*writer)->Seal(host.tables(), nullptr, proto::Trailer::STOPPED).ok());

  absl::StatusOr<std::unique_ptr<ChunkReader>> reader = ChunkReader::Open(folder / "a.xenprof");
  ASSERT_TRUE(reader.ok()) << reader.status();
  absl::StatusOr<proto::Trailer> trailer = (*reader)->ReadTrailer();
  ASSERT_TRUE(trailer.ok()) << trailer.status();
  EXPECT_EQ(trailer->samples(), host.samples().size());
  EXPECT_EQ(trailer->lost(), 40u);
  EXPECT_EQ(trailer->shed(), 3u);
  ASSERT_EQ(trailer->cpus_size(), 2);
  EXPECT_EQ(trailer->cpus(0).throttled_ns(), 20u);
  EXPECT_EQ(trailer->cpus(1).cpu(), 2u);
  EXPECT_EQ(trailer->cpus(1).lost(), 40u);
  EXPECT_EQ(trailer->end(), proto::Trailer::STOPPED);
  EXPECT_EQ(trailer->mode().kind(), proto::Mode::DOM0_ONLY);
  EXPECT_EQ(trailer->realtime_offset_ns(), 18);
  EXPECT_EQ(trailer->start_ns(), start);
  EXPECT_EQ(trailer->end_ns(), host.now_ns());
  ASSERT_EQ(trailer->blocks_size(), 2);
  uint64_t by_origin[kOriginCount] = {};
  for (const PlainSample& sample : host.samples()) ++by_origin[static_cast<int>(sample.origin)];
  EXPECT_THAT(trailer->samples_by_origin(), testing::ElementsAreArray(by_origin));
  // Reading it left the reader at the first block.
  Contents contents = ReadAll(*std::move(reader));
  EXPECT_EQ(contents.samples.size(), host.samples().size());
  ASSERT_EQ(contents.incidents.size(), 4u);
  EXPECT_EQ(contents.incidents[3].text(), "not \xef\xbf\xbd UTF-8");
}

TEST(ChunkWriter, NamesAndLinesComeBack) {
  TempFolder folder;
  Host host;
  Contents contents = ReadAll(MakeChunk(folder / "a.xenprof", &host, 2));
  const ChunkDecoder& decoder = *contents.decoder;
  const merge::Tables& tables = decoder.tables();
  int named = 0, with_lines = 0;
  for (uint32_t stack = 0; stack < tables.stacks.size(); ++stack) {
    decoder.ForEachFrame(stack, [&](uint32_t frame, bool is_leaf) {
      const uint32_t mapping = tables.frames[frame].mapping;
      const uint64_t address = decoder.LookupAddress(frame, is_leaf);
      EXPECT_EQ(address, tables.frames[frame].address - (is_leaf ? 0 : 1));
      const ChunkDecoder::Function function = decoder.FunctionFor(mapping, address);
      if (mapping == 4) {
        EXPECT_FALSE(function);
        EXPECT_EQ(decoder.SymbolProblem(mapping), "nothing has names here");
        return;
      }
      ASSERT_TRUE(function);
      EXPECT_EQ(std::string(function.name), absl::StrCat(tables.mappings[mapping].name, "_", address / 64));
      ++named;
      const absl::Span<const ChunkDecoder::Line> lines = decoder.LinesFor(mapping, address);
      ASSERT_EQ(lines.size(), address % 2 == 0 ? 2u : 0u);
      if (lines.empty()) return;
      ++with_lines;
      EXPECT_EQ(lines[0].function, "inlined");
      EXPECT_EQ(lines[1].file, "a.c");
      EXPECT_EQ(lines[1].line, 70u);
    });
  }
  EXPECT_GT(named, 100);
  EXPECT_GT(with_lines, 50);
}

TEST(ChunkWriter, AddressesToNameAreLookedUpAsCallersOrLeaves) {
  merge::Tables tables;
  tables.mappings.resize(2);
  tables.tasks.resize(1);
  tables.frames = {{1, 0x100}, {1, 0x200}, {0, 0x300}};
  // root -> 0x100 -> 0x200; 0x100 and 0x200 are leaves of one stack each; an unknown mapping needs no name.
  tables.nodes = {{0, 0}, {0, 0}, {1, 1}, {0, 2}};
  tables.stacks = {{2, Origin::kDom0User, 0}, {1, Origin::kDom0User, 0}, {3, Origin::kDom0User, 0}};
  EXPECT_THAT(AddressesToName(tables), ElementsAre(ElementsAre(), ElementsAre(0xff, 0x100, 0x200)));
}

TEST(ChunkWriter, ManySymbolsComeInSeveralPayloads) {
  // 100,000 functions of long names: more than one payload's worth.
  class LongNames : public symbols::Symbolizer {
    void Note(const symbols::MappingInfo&) override {}
    symbols::Resolved Resolve(const symbols::MappingInfo&, absl::Span<const uint64_t> addresses) override {
      symbols::Resolved resolved;
      for (const uint64_t address : addresses) {
        resolved.functions.push_back({address, 1, absl::StrCat(std::string(100, 'n'), address)});
      }
      return resolved;
    }
  } names;
  TempFolder folder;
  merge::Tables tables;
  tables.mappings.resize(2);
  tables.tasks.resize(1);
  tables.nodes.push_back({0, 0});
  for (uint32_t i = 0; i < 100000; ++i) {
    tables.frames.push_back({1, 0x1000 + i * 16});
    tables.nodes.push_back({0, i});
    tables.stacks.push_back({i + 1, Origin::kDom0User, 0});
  }
  auto writer = ChunkWriter::Create(folder / "a.xenprof", MadeUpHeader(), {.sync = false});
  ASSERT_TRUE(writer.ok());
  merge::Window window;
  window.start_ns = 1;
  window.end_ns = 2;
  ASSERT_TRUE((*writer)->WriteBlock(window, tables, 0).ok());
  ASSERT_TRUE((*writer)->Seal(tables, &names, proto::Trailer::STOPPED).ok());
  auto reader = ChunkReader::Open(folder / "a.xenprof");
  ASSERT_TRUE(reader.ok());
  ChunkDecoder decoder((*reader)->header());
  int payloads = 0;
  proto::Payload payload;
  while (*(*reader)->Next(&payload)) {
    ASSERT_TRUE(decoder.Add(payload).ok());
    payloads += payload.has_symbols();
  }
  EXPECT_GT(payloads, 1);
  EXPECT_EQ(decoder.FunctionsOf(1).size(), 100000u);
  for (const uint32_t i : {0u, 1u, 50000u, 99999u}) {
    EXPECT_EQ(std::string(decoder.FunctionFor(1, 0x1000 + i * 16).name),
              absl::StrCat(std::string(100, 'n'), 0x1000 + i * 16));
  }
  EXPECT_EQ(payload.trailer().named_frames(), 100000u);
}

TEST(ChunkWriter, ALateSampleWidensItsBlock) {
  TempFolder folder;
  Host host(1, 1);
  merge::Window window = host.Advance(1000000000, 50000000);
  window.cpus[0].time_ns[0] -= 7000;
  auto writer = ChunkWriter::Create(folder / "a.xenprof", MadeUpHeader(), {.sync = false});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->WriteBlock(window, host.tables(), 0).ok());
  ASSERT_TRUE((*writer)->Seal(host.tables(), nullptr, proto::Trailer::STOPPED).ok());
  Contents contents = ReadAll(folder / "a.xenprof");
  EXPECT_EQ(contents.trailer.start_ns(), window.start_ns - 7000);
  EXPECT_EQ(contents.samples[0].time_ns, window.start_ns - 7000);
}

TEST(ChunkWriter, LargeWindowsAreSplit) {
  merge::Window window;
  const auto add = [&](uint32_t cpu, size_t samples) {
    window.cpus.emplace_back().cpu = cpu;
    window.cpus.back().time_ns.resize(samples);
  };
  const size_t most = BlockEncoder::kMaxSamplesPerBlock;
  add(0, most - 1);
  add(1, 2);
  add(2, 2 * most + 1);
  add(3, 5);
  std::vector<std::tuple<size_t, size_t, size_t>> pieces;
  for (const BlockEncoder::Piece& piece : BlockEncoder::Split(window)) {
    pieces.emplace_back(piece.first_cpu, piece.end_cpu, piece.first_sample);
  }
  EXPECT_THAT(pieces, ElementsAre(std::tuple(0, 1, 0), std::tuple(1, 2, 0), std::tuple(2, 3, 0),
                                  std::tuple(2, 3, most), std::tuple(2, 3, 2 * most), std::tuple(3, 4, 0)));
}

TEST(ChunkWriter, ExtremeTimesAndIdsSurvive) {
  TempFolder folder;
  merge::Tables tables;
  tables.mappings.resize(2);
  tables.tasks.resize(1);
  tables.nodes = {{0, 0}, {0, 0}, {0, 1}};
  tables.frames = {{1, UINT64_MAX}, {1, 0}};
  tables.stacks = {{1, Origin::kUnknown, 0}, {2, Origin::kGuestUser, 255}, {0, Origin::kXenIdle, 0}};
  merge::Window window;
  window.start_ns = 0;
  window.end_ns = UINT64_MAX;
  merge::CpuColumns& cpu = window.cpus.emplace_back();
  cpu.cpu = UINT32_MAX;
  cpu.time_ns = {0, 1, 1, 1u << 20, uint64_t{1} << 40, uint64_t{1} << 63, UINT64_MAX - 1};
  cpu.stack = {2, 0, 1, 0, 2, 1, 0};
  cpu.task.assign(7, 0);
  auto writer = ChunkWriter::Create(folder / "a.xenprof", MadeUpHeader(), {.sync = false});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->WriteBlock(window, tables, INT64_MIN).ok());
  ASSERT_TRUE((*writer)->Seal(tables, nullptr, proto::Trailer::STOPPED).ok());
  Contents contents = ReadAll(folder / "a.xenprof");
  ASSERT_EQ(contents.samples.size(), 7u);
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(contents.samples[i].time_ns, cpu.time_ns[i]);
  EXPECT_THAT(contents.samples[1].frames, ElementsAre(absl::StrCat("@", UINT64_MAX)));
  EXPECT_THAT(contents.samples[0].frames, ElementsAre());
  EXPECT_EQ(contents.samples[2].flags, 255);
}

TEST(ChunkWriter, RefusesWhatTablesDoNotHave) {
  TempFolder folder;
  Host host;
  auto writer = ChunkWriter::Create(folder / "a.xenprof", MadeUpHeader());
  ASSERT_TRUE(writer.ok());
  merge::Window window = host.Advance(1000000000, 50000000);
  window.cpus[1].stack[3] = static_cast<uint32_t>(host.tables().stacks.size());
  const absl::Status status = (*writer)->WriteBlock(window, host.tables(), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a.xenprof.partial: CPU 2: no stack"));
  // Nothing of it is in the file; the next block is whole.
  ASSERT_TRUE((*writer)->WriteBlock(host.Advance(1000000000, 50000000), host.tables(), 0).ok());
  ASSERT_TRUE((*writer)->Seal(host.tables(), nullptr, proto::Trailer::STOPPED).ok());
  EXPECT_EQ(Verify(folder / "a.xenprof")->problems.size(), 0u);
}

TEST(ChunkWriter, CreatesItsOwnFileOnly) {
  TempFolder folder;
  const std::string path = folder / "a.xenprof";
  ASSERT_EQ(symlink("/etc/hostname", (path + ".partial").c_str()), 0);
  absl::StatusOr<std::unique_ptr<ChunkWriter>> writer = ChunkWriter::Create(path, MadeUpHeader());
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kAlreadyExists) << writer.status();
  EXPECT_THAT(std::string(writer.status().message()),
              HasSubstr(path + ".partial: cannot create: File exists"));
  ASSERT_EQ(unlink((path + ".partial").c_str()), 0);

  writer = ChunkWriter::Create(path, MadeUpHeader());
  ASSERT_TRUE(writer.ok());
  struct stat status;
  ASSERT_EQ(stat((path + ".partial").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777 & ~0640u, 0u);
  WriteFile(path, "someone else's");
  const absl::Status sealed = (*writer)->Seal(merge::Tables(), nullptr, proto::Trailer::STOPPED);
  EXPECT_EQ(sealed.code(), absl::StatusCode::kAlreadyExists) << sealed;
  EXPECT_EQ(ReadFile(path), "someone else's");
  // It may be tried again.
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_TRUE((*writer)->Seal(merge::Tables(), nullptr, proto::Trailer::STOPPED).ok());
  EXPECT_TRUE(ReadAll(path).sealed);
  EXPECT_EQ((*writer)->Seal(merge::Tables(), nullptr, proto::Trailer::STOPPED).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ChunkWriter, MayReplace) {
  TempFolder folder;
  Host host;
  WriteFile(folder / "a.xenprof", "old");
  WriteFile(folder / "a.xenprof.partial", "older");
  MakeChunk(folder / "a.xenprof", &host, 1, 1000000000, 10000000, {.sync = false, .replace = true});
  EXPECT_EQ(ReadAll(folder / "a.xenprof").samples, host.samples());
}

TEST(ChunkWriter, MissingFolder) {
  absl::StatusOr<std::unique_ptr<ChunkWriter>> writer = ChunkWriter::Create("/no/such/folder/a.xenprof", {});
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(writer.status().message()), HasSubstr("/no/such/folder: cannot open the folder"));
}

// A disk that becomes full, by the limit on file sizes: writes come back short, then fail.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(uint64_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = {bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  rlimit old_;
};

// What the writer before has left in the memory shows nowhere.
TEST(ChunkWriter, MemoryHandedOnChangesNothing) {
  TempFolder folder;
  WriterOptions handed_on;
  handed_on.sync = false;
  handed_on.memory = NewWriterMemory();
  Host first(1), second(2), again(2);
  MakeChunk(folder / "first.xenprof", &first, 3, 1000000000, 1000000, handed_on);
  MakeChunk(folder / "second.xenprof", &second, 2, 500000000, 10000000, handed_on);
  MakeChunk(folder / "again.xenprof", &again, 2, 500000000, 10000000, {.sync = false});
  EXPECT_EQ(ReadAll(folder / "second.xenprof").samples, ReadAll(folder / "again.xenprof").samples);
}

TEST(ChunkWriter, FullDiskCutsBackToTheLastBlock) {
  TempFolder folder;
  const std::string path = folder / "a.xenprof";
  Host host;
  auto writer = ChunkWriter::Create(path, MadeUpHeader(), {.sync = false});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(
      (*writer)->WriteBlock(host.Advance(1000000000, 10000000), host.tables(), 0, host.domains()).ok());
  const uint64_t good = (*writer)->bytes();
  std::vector<PlainSample> expected = host.samples();
  for (const uint64_t room : {0, 1, 300}) {
    FileSizeLimit limit(good + room);
    const merge::Window& window = host.Advance(1000000000, 10000000);
    const absl::Status status = (*writer)->WriteBlock(window, host.tables(), 0, host.domains());
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path + ".partial: cannot write: File too large"));
    EXPECT_EQ((*writer)->bytes(), good);
    EXPECT_EQ(ReadFile(path + ".partial").size(), good);
    // Sealing fails alike, and leaves the file for another try.
    MadeUpNames names;
    EXPECT_EQ((*writer)->Seal(host.tables(), &names, proto::Trailer::DISK_LOW).code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReadFile(path + ".partial").size(), good);
  }
  // There is room again: the next block brings what the failed ones would have.
  const size_t before = host.samples().size();
  const merge::Window& window = host.Advance(1000000000, 10000000);
  ASSERT_TRUE((*writer)->WriteBlock(window, host.tables(), 0, host.domains()).ok());
  expected.insert(expected.end(), host.samples().begin() + static_cast<std::ptrdiff_t>(before),
                  host.samples().end());
  MadeUpNames names;
  ASSERT_TRUE((*writer)->Seal(host.tables(), &names, proto::Trailer::STOPPED).ok());
  EXPECT_EQ(ReadAll(path).samples, expected);
  EXPECT_EQ(Verify(path)->problems.size(), 0u);
}

// Unmounts what is mounted on a folder, before the folder goes.
struct Unmount {
  std::string path;
  ~Unmount() { umount2(path.c_str(), MNT_DETACH); }
};

TEST(ChunkWriter, FullFileSystem) {
  TempFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "cannot mount a tmpfs here (needs CAP_SYS_ADMIN): ENOSPC is not tried";
  }
  const Unmount unmount{folder.path()};
  Host host(5);
  auto writer = ChunkWriter::Create(folder / "a.xenprof", MadeUpHeader());
  ASSERT_TRUE(writer.ok());
  size_t written = 0;
  absl::Status status;
  while (status.ok() && written < 1000000) {
    written = host.samples().size();
    status = (*writer)->WriteBlock(host.Advance(1000000000, 1000000), host.tables(), 0, host.domains());
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("No space left on device"));
  EXPECT_EQ((*writer)->samples(), written);
  auto reader = ChunkReader::Open(folder / "a.xenprof.partial");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(ReadAll(*std::move(reader)).samples.size(), written);
}

}  // namespace
}  // namespace xenprof::chunk
