#include "xenprof/chunk/reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "test_support.h"
#include "xenprof/chunk/crc32c.h"
#include "xenprof/chunk/envelope.h"

namespace xenprof::chunk {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A small sealed chunk, its samples, and where its envelopes begin.
struct Small {
  std::string bytes;
  std::vector<PlainSample> samples;
  std::vector<uint64_t> offsets;         // and the size as the last
  std::vector<uint64_t> samples_before;  // of the blocks before each offset
  Small() {
    TempFolder folder;
    Host host(2, 2);
    bytes = ReadFile(MakeChunk(folder / "a.xenprof", &host, 3, 300000000, 20000000));
    samples = host.samples();
    auto reader = ChunkReader::FromBytes(bytes, "small");
    offsets = {0};
    samples_before = {0};
    proto::Payload payload;
    uint64_t count = 0;
    while (*(*reader)->Next(&payload)) {
      offsets.push_back((*reader)->offset());
      samples_before.push_back(count);
      for (const proto::CpuSamples& cpu : payload.block().cpus()) count += cpu.stack_size();
    }
    offsets.push_back(bytes.size());
    samples_before.push_back(count);
    EXPECT_EQ(count, samples.size());
  }
};

const Small& TheSmall() {
  static const Small small;
  return small;
}

// Reads all there is; the error, or the samples.
absl::StatusOr<std::vector<PlainSample>> ReadStrictly(const std::string& bytes) {
  auto reader = ChunkReader::FromBytes(bytes, "FILE");
  if (!reader.ok()) return reader.status();
  ChunkDecoder decoder((*reader)->header());
  proto::Payload payload;
  while (true) {
    absl::StatusOr<bool> more = (*reader)->Next(&payload);
    if (!more.ok()) return more.status();
    if (!*more) break;
    const absl::Status status = decoder.Add(payload);
    if (!status.ok()) return (*reader)->ErrorHere(status.message());
  }
  return ReadAll(*ChunkReader::FromBytes(bytes, "FILE")).samples;
}

Contents ReadSalvaging(const std::string& bytes) {
  auto reader = ChunkReader::FromBytes(bytes, "FILE", {.salvage = true});
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return {};
  return ReadAll(*std::move(reader));
}

std::string Envelope(const std::string& payload, uint64_t codec, uint64_t size, int64_t crc = -1) {
  std::string envelope = "\x0d";
  const uint32_t value = crc >= 0 ? static_cast<uint32_t>(crc) : Crc32c(payload.data(), payload.size());
  for (int shift = 0; shift < 32; shift += 8) envelope.push_back(static_cast<char>(value >> shift));
  envelope += '\x10';
  AppendVarint(codec, &envelope);
  envelope += '\x20';
  AppendVarint(size, &envelope);
  envelope += '\x1a';
  AppendVarint(payload.size(), &envelope);
  envelope += payload;
  std::string out;
  AppendVarint(envelope.size(), &out);
  return out + envelope;
}

std::string Stored(const proto::Payload& payload) { return Envelope(payload.SerializeAsString(), 0, 0); }

std::string Zstd(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

std::string HeaderEnvelope(uint32_t version = kFormatVersion) {
  proto::Payload payload;
  payload.mutable_header()->set_magic("xenprof");
  payload.mutable_header()->set_format_version(version);
  payload.mutable_header()->set_producer("xenprof 9");
  return Stored(payload);
}

TEST(ChunkReader, TruncationAtEveryByte) {
  const Small& small = TheSmall();
  size_t envelope = 0;  // the one the cut is in
  for (size_t size = 0; size < small.bytes.size(); ++size) {
    const std::string cut = small.bytes.substr(0, size);
    while (small.offsets[envelope + 1] <= size) ++envelope;
    const bool at_boundary = small.offsets[envelope] == size;
    const absl::StatusOr<std::vector<PlainSample>> samples = ReadStrictly(cut);
    if (at_boundary && size > 0) {
      ASSERT_TRUE(samples.ok()) << size << ": " << samples.status();
      EXPECT_EQ(samples->size(), small.samples_before[envelope]);
    } else {
      ASSERT_FALSE(samples.ok()) << size;
      ASSERT_THAT(std::string(samples.status().message()),
                  StartsWith(absl::StrCat("FILE: offset ", small.offsets[envelope], ": ")));
    }
    const Contents salvaged = ReadSalvaging(cut);
    ASSERT_EQ(salvaged.samples.size(), small.samples_before[envelope]) << size;
    ASSERT_EQ(salvaged.damage.empty(), at_boundary && size > 0) << size;
  }
}

TEST(ChunkReader, BitFlipAtEveryByte) {
  const Small& small = TheSmall();
  size_t harmless = 0;
  for (size_t i = 0; i < small.bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = small.bytes;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      const absl::StatusOr<std::vector<PlainSample>> samples = ReadStrictly(flipped);
      if (samples.ok()) {
        ++harmless;
        ASSERT_EQ(*samples, small.samples) << i << ", bit " << bit;
      } else {
        ASSERT_THAT(std::string(samples.status().message()), StartsWith("FILE: offset "));
      }
    }
  }
  // Only a field whose absence does no harm may be flipped away unnoticed.
  EXPECT_LT(harmless, 100u);
}

TEST(ChunkReader, SalvageLosesOneEnvelopeToABadByte) {
  const Small& small = TheSmall();
  for (size_t i = 0; i < small.bytes.size(); ++i) {
    std::string broken = small.bytes;
    broken[i] = static_cast<char>(broken[i] ^ 0x55);
    const Contents contents = ReadSalvaging(broken);
    size_t envelope = 0;
    while (small.offsets[envelope + 1] <= i) ++envelope;
    const uint64_t lost = small.samples_before[envelope + 1] - small.samples_before[envelope];
    // What comes behind is found again. (Some flips of a length happen to end where another envelope does.)
    ASSERT_GE(contents.samples.size(), small.samples.size() - lost) << i;
    ASSERT_FALSE(contents.damage.empty()) << i;
  }
}

TEST(ChunkReader, SalvageKeepsCountsWhenADictionaryIsLost) {
  const Small& small = TheSmall();
  std::string broken = small.bytes;
  broken[small.offsets[1] + 30] ^= 1;  // the first block, which has most of the dictionary
  EXPECT_THAT(std::string(ReadStrictly(broken).status().message()),
              testing::MatchesRegex("FILE: offset [0-9]+: wrong checksum: 0x[0-9a-f]{8}, not 0x[0-9a-f]{8}"));
  const Contents contents = ReadSalvaging(broken);
  const size_t rest = small.samples.size() - small.samples_before[2];
  ASSERT_EQ(contents.samples.size(), rest);
  EXPECT_TRUE(contents.decoder->lost_entries());
  EXPECT_TRUE(contents.sealed);
  size_t lost = 0;
  for (size_t i = 0; i < rest; ++i) {
    const PlainSample& got = contents.samples[i];
    const PlainSample& expected = small.samples[small.samples.size() - rest + i];
    EXPECT_EQ(std::tie(got.cpu, got.time_ns), std::tie(expected.cpu, expected.time_ns));
    const bool stack_lost = got.frames == std::vector<std::string>{"[lost in damage]@0"};
    lost += stack_lost;
    EXPECT_EQ(got.origin, stack_lost ? Origin::kUnknown : expected.origin);
  }
  EXPECT_GT(lost, 0u);
  ASSERT_EQ(contents.damage.size(), 1u);
  EXPECT_EQ(contents.damage[0].offset, small.offsets[1]);
  EXPECT_EQ(contents.damage[0].bytes, small.offsets[2] - small.offsets[1]);
}

TEST(ChunkReader, GarbageInBetweenIsSkipped) {
  const Small& small = TheSmall();
  std::string garbage;
  for (uint32_t i = 0; i < 400000; ++i) garbage.push_back(static_cast<char>(i * i * 31 + i / 7));
  std::string bytes = small.bytes;
  bytes.insert(small.offsets[2], garbage);
  EXPECT_FALSE(ReadStrictly(bytes).ok());
  const Contents contents = ReadSalvaging(bytes);
  EXPECT_EQ(contents.samples, small.samples);
  uint64_t skipped = 0;
  for (const Damage& damage : contents.damage) skipped += damage.bytes;
  EXPECT_EQ(skipped, garbage.size());
  // Garbage in front: the header is still found.
  const Contents from_front = ReadSalvaging(std::string(1000, '\x01') + small.bytes);
  EXPECT_EQ(from_front.samples, small.samples);
}

TEST(ChunkReader, OtherFilesAreNamedAsSuch) {
  for (const std::string& bytes : {std::string("PERFILE2") + std::string(200, '\0'),
                                   std::string(5000, '\xff'), std::string("hello\n"), std::string(1, '\0')}) {
    const auto reader = ChunkReader::FromBytes(bytes, "perf.data");
    EXPECT_THAT(std::string(reader.status().message()),
                StartsWith("perf.data: offset 0: not a xenprof chunk, or a damaged one: "));
  }
  EXPECT_EQ(ChunkReader::FromBytes("", "x").status().message(), "x: offset 0: empty file");
  proto::Payload payload;
  payload.mutable_header()->set_magic("other");
  EXPECT_THAT(std::string(ChunkReader::FromBytes(Stored(payload), "x").status().message()),
              HasSubstr("not a xenprof chunk: its header has another magic"));
  payload.mutable_block();
  EXPECT_THAT(std::string(ChunkReader::FromBytes(Stored(payload), "x").status().message()),
              HasSubstr("x: offset 0: the file does not begin with a header"));
  EXPECT_THAT(std::string(ChunkReader::Open("/no/such/file").status().message()),
              HasSubstr("/no/such/file: cannot open: No such file or directory"));
  EXPECT_THAT(std::string(ChunkReader::Open("/tmp").status().message()),
              HasSubstr("/tmp: cannot read: Is a directory"));
}

TEST(ChunkReader, ANewerVersionIsRefusedByName) {
  for (const bool salvage : {false, true}) {
    const auto reader = ChunkReader::FromBytes(HeaderEnvelope(7), "FILE", {.salvage = salvage});
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(reader.status().message(),
              "FILE: offset 0: format version 7, written by xenprof 9; this program reads up to 1");
  }
  EXPECT_FALSE(ChunkReader::FromBytes(HeaderEnvelope(0), "FILE").ok());
}

TEST(ChunkReader, UnknownFieldsOfThisVersionAreIgnored) {
  proto::Payload payload;
  payload.mutable_header()->set_magic("xenprof");
  payload.mutable_header()->set_format_version(1);
  std::string header = payload.header().SerializeAsString() + "\xfa\x3f\x03new" + "\xf8\x3f\x05";
  std::string bytes = "\x0a";
  AppendVarint(header.size(), &bytes);
  bytes += header;
  // In the envelope too: field 100, of each wire type.
  std::string envelope = Envelope(bytes, 0, 0).substr(1) + "\xa0\x06\x07" +
                         "\xa5\x06"
                         "abcd" +
                         "\xa1\x06"
                         "abcdefgh" +
                         "\xa2\x06\x02"
                         "ab";
  std::string file;
  AppendVarint(envelope.size(), &file);
  EXPECT_TRUE(ChunkReader::FromBytes(file + envelope, "FILE").ok());
}

// What a payload claims, and what it is.
TEST(ChunkReader, DecompressionBombs) {
  const std::string header = HeaderEnvelope();
  const auto error = [&](const std::string& envelope) {
    auto reader = ChunkReader::FromBytes(header + envelope, "FILE");
    EXPECT_TRUE(reader.ok()) << reader.status();
    proto::Payload payload;
    return std::string((*reader)->Next(&payload).status().message());
  };
  const std::string zeros = Zstd(std::string(32 << 20, '\0'));
  const std::string at = absl::StrCat("FILE: offset ", header.size(), ": ");
  EXPECT_EQ(error(Envelope(zeros, 1, uint64_t{1} << 40)),
            at + "payload unpacks to 1099511627776 bytes: more than 67108864");
  EXPECT_THAT(error(Envelope(zeros, 1, 100)), StartsWith(at + "payload does not unpack: "));
  EXPECT_THAT(error(Envelope(zeros, 1, 33 << 20)),
              HasSubstr("payload unpacks to 33554432 bytes, the envelope says 34603008"));
  EXPECT_THAT(error(Envelope(zeros, 1, 0)), HasSubstr("compressed, yet without a size"));
  EXPECT_THAT(error(Envelope(zeros, 0, 5)), HasSubstr("stored, yet with a size to unpack to"));
  EXPECT_THAT(error(Envelope(zeros, 2, 5)), HasSubstr("unknown codec 2"));
  EXPECT_THAT(error(Envelope("", 0, 0)), HasSubstr("envelope without payload"));
  // Ten million empty messages in 20 MB, which are next to nothing in the file.
  std::string mappings;
  for (int i = 0; i < 10 << 20; ++i) mappings += std::string("\x22\0", 2);  // Dictionary.mappings
  std::string block = "\x22";                                               // Block.dictionary
  AppendVarint(mappings.size(), &block);
  block += mappings;
  std::string payload = "\x12";  // Payload.block
  AppendVarint(block.size(), &payload);
  payload += block;
  EXPECT_EQ(error(Envelope(Zstd(payload), 1, payload.size())), at + "payload of more than 2097152 items");
}

TEST(ChunkReader, TheTrailerIsLast) {
  const Small& small = TheSmall();
  const std::string block = small.bytes.substr(small.offsets[1], small.offsets[2] - small.offsets[1]);
  EXPECT_THAT(std::string(ReadStrictly(small.bytes + block).status().message()),
              HasSubstr("something comes behind the trailer"));
  const std::string header = small.bytes.substr(0, small.offsets[1]);
  EXPECT_THAT(std::string(ReadStrictly(header + header).status().message()), HasSubstr("a second header"));
}

TEST(ChunkReader, ReadTrailer) {
  const Small& small = TheSmall();
  const auto trailer = [](const std::string& bytes) {
    return (*ChunkReader::FromBytes(bytes, "FILE"))->ReadTrailer();
  };
  EXPECT_EQ(trailer(small.bytes)->samples(), small.samples.size());
  for (size_t i = 1; i + 1 < small.offsets.size(); ++i) {
    EXPECT_EQ(trailer(small.bytes.substr(0, small.offsets[i])).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(trailer(small.bytes.substr(0, small.offsets[i] + 5)).status().code(),
              absl::StatusCode::kNotFound);
  }
  std::string broken = small.bytes;
  broken.back() ^= 1;
  EXPECT_EQ(trailer(broken).status().code(), absl::StatusCode::kDataLoss);
}

TEST(ChunkReader, BlocksOutsideTheWindowComeWithoutSamples) {
  TempFolder folder;
  Host host;
  const std::string path = MakeChunk(folder / "a.xenprof", &host, 10);
  const Contents whole = ReadAll(path);
  auto reader = ChunkReader::Open(path);
  ASSERT_TRUE(reader.ok());
  const uint64_t start = host.now_ns() - uint64_t{5500000000}, end = start + 2000000000;
  (*reader)->SetWindow(start, end);
  ChunkDecoder decoder((*reader)->header());
  proto::Payload payload;
  int with = 0, without = 0;
  std::vector<uint64_t> times;
  while (*(*reader)->Next(&payload)) {
    ASSERT_TRUE(decoder.Add(payload).ok());
    if (!payload.has_block()) continue;
    (payload.block().cpus().empty() ? without : with)++;
    EXPECT_FALSE(payload.block().cpu_time().empty());
    decoder.ForEachSample(payload.block(), [&](uint32_t, uint64_t time_ns, uint32_t, uint32_t, uint32_t) {
      if (time_ns >= start && time_ns < end) times.push_back(time_ns);
    });
  }
  EXPECT_EQ(with, 3);
  EXPECT_EQ(without, 7);
  EXPECT_EQ(decoder.tables().stacks.size(), whole.decoder->tables().stacks.size());
  EXPECT_EQ(decoder.FunctionsOf(3).size(), whole.decoder->FunctionsOf(3).size());
  std::vector<uint64_t> expected;
  for (const PlainSample& sample : host.samples()) {
    if (sample.time_ns >= start && sample.time_ns < end) expected.push_back(sample.time_ns);
  }
  std::sort(times.begin(), times.end());
  EXPECT_EQ(times, expected);
}

TEST(ChunkReader, ReadsAPipe) {
  const Small& small = TheSmall();
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  std::thread writer([&] {
    for (size_t at = 0; at < small.bytes.size();) {
      at += static_cast<size_t>(
          write(fds[1], small.bytes.data() + at, std::min<size_t>(3000, small.bytes.size() - at)));
    }
    close(fds[1]);
  });
  auto reader = ChunkReader::FromDescriptor(fds[0], "stdin");
  writer.join();
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(ReadAll(*std::move(reader)).samples, small.samples);
}

// Envelopes nested in envelopes: each is a false start for the search.
TEST(ChunkReader, SalvageGivesUpOnAFileMadeOfFalseStarts) {
  std::string bytes;
  for (int i = 0; i < 20000; ++i)
    bytes += std::string("\xff\xff\x07\x0d\x01\x02\x03\x04\x1a\xf0\xff\x06", 12);
  bytes += std::string(200000, 'x');
  const Contents contents = ReadSalvaging(HeaderEnvelope() + bytes);
  EXPECT_EQ(contents.samples.size(), 0u);
  EXPECT_FALSE(contents.damage.empty());
}

TEST(Verify, FindsWhatTheTrailerHasWrong) {
  TempFolder folder;
  const Small& small = TheSmall();
  auto reader = ChunkReader::FromBytes(small.bytes, "FILE");
  proto::Payload payload;
  payload.mutable_trailer()->CopyFrom(*(*reader)->ReadTrailer());
  payload.mutable_trailer()->set_samples(5);
  payload.mutable_trailer()->mutable_blocks(1)->set_offset(3);
  WriteFile(folder / "a.xenprof",
            small.bytes.substr(0, small.offsets[small.offsets.size() - 2]) + Stored(payload));
  absl::StatusOr<VerifyReport> report = Verify(folder / "a.xenprof");
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->problems.size(), 2u);
  EXPECT_EQ(report->problems[0].reason,
            absl::StrCat("the trailer says 5 samples, the blocks have ", small.samples.size()));
  EXPECT_EQ(report->problems[1].reason,
            absl::StrCat("the trailer says 3 as offset of block 1, the blocks have ", small.offsets[2]));

  // A lost block shows as what it is and in the totals.
  std::string broken = small.bytes;
  broken[small.offsets[2] + 20] ^= 4;
  WriteFile(folder / "b.xenprof", broken);
  report = Verify(folder / "b.xenprof");
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->problems[0].reason, StartsWith("wrong checksum"));
  EXPECT_EQ(report->problems[0].offset, small.offsets[2]);
  EXPECT_GT(report->problems.size(), 2u);

  WriteFile(folder / "c.xenprof", small.bytes.substr(0, small.offsets[3]));
  report = Verify(folder / "c.xenprof");
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->sealed);
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_EQ(report->problems[0].reason, "no trailer: the file was never completed");
}

}  // namespace
}  // namespace xenprof::chunk
