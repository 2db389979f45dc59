#include "xenprof/perf/perf_data.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "xenprof/perf/perf_data_header.h"
#include "xenprof/perf/perf_data_input.h"
#include "xenprof/perf/perf_data_stream.h"

namespace xenprof::perf {
namespace {

struct Section {
  uint64_t offset;
  uint64_t size;
};

struct FileHeader {
  char magic[8];
  uint64_t size;
  uint64_t attr_size;  // of an entry of `attrs`: perf_event_attr and the section of its ids
  Section attrs;
  Section data;
  Section event_types;
  uint64_t features[kFeatureBits / 64];
};
static_assert(sizeof(FileHeader) == 104);

constexpr uint64_t kPipeHeaderBytes = 16;
constexpr uint64_t kHeaderBytesWithoutFeatures = offsetof(FileHeader, features);
constexpr uint64_t kMaxAttrBytes = 4096;
constexpr uint64_t kMaxEvents = 1 << 14;
constexpr uint64_t kMaxIds = 1 << 22;
constexpr uint64_t kMaxFeatureBytes = uint64_t{64} << 20;

// enum perf_user_event_type.
constexpr uint32_t kHeaderAttr = 64;
constexpr uint32_t kHeaderBuildId = 67;
constexpr uint32_t kEventUpdate = 78;
constexpr uint32_t kHeaderFeature = 80;
constexpr uint64_t kEventUpdateName = 2;

class Reader : public PerfDataFile {
 public:
  Reader(PerfDataInput input, std::string name) : input_(std::move(input)), name_(std::move(name)) {}

  absl::Status Load(const std::vector<std::string>& more_files, const PerfDataOptions& options);

  const std::vector<std::unique_ptr<PerfEvent>>& events() const override { return events_.events(); }
  const PerfDataFeatures& features() const override { return features_; }
  absl::StatusOr<bool> Next(DataRecord* record) override;
  void Rewind() override { stream_->Rewind(); }
  const std::vector<std::string>& problems() const override {
    all_problems_ = problems_;
    all_problems_.insert(all_problems_.end(), stream_->problems().begin(), stream_->problems().end());
    return all_problems_;
  }
  bool unfinished() const override { return unfinished_; }
  bool pipe_mode() const override { return pipe_mode_; }
  uint64_t file_bytes() const override { return input_.size(); }
  int64_t modified_unix_seconds() const override { return input_.modified_unix_seconds(); }
  const std::string& name() const override { return name_; }

 private:
  std::string At(uint64_t offset) const { return absl::StrCat(name_, ": offset ", offset, ": "); }
  absl::Status ReadExactly(uint64_t offset, void* out, size_t size, absl::string_view what) const;
  absl::Status LoadFileMode(const FileHeader& header, std::vector<RecordStream::Segment>* segments);
  absl::Status LoadEvents(const FileHeader& header);
  void LoadFeatures(const FileHeader& header, uint64_t table_offset);
  absl::Status AddMoreFiles(const std::vector<std::string>& files, const PerfDataOptions& options,
                            std::vector<RecordStream::Segment>* segments);
  absl::Status TakeIn(const RecordStream::Record& record, uint32_t type);

  PerfDataInput input_;
  std::string name_;
  std::vector<std::unique_ptr<PerfDataInput>> more_inputs_;
  std::unique_ptr<RecordStream> stream_;
  EventTable events_;
  PerfDataFeatures features_;
  bool unfinished_ = false;
  bool pipe_mode_ = false;
  bool threads_folder_ = false;
  uint64_t taken_in_until_ = 0;  // header records before this offset are known from an earlier pass
  std::vector<std::string> problems_;
  mutable std::vector<std::string> all_problems_;
};

absl::Status Reader::ReadExactly(uint64_t offset, void* out, size_t size, absl::string_view what) const {
  absl::StatusOr<size_t> got = input_.ReadAt(offset, out, size);
  if (!got.ok()) return absl::Status(got.status().code(), absl::StrCat(name_, ": ", got.status().message()));
  if (*got == size) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(At(offset), what, " needs ", size, " bytes where the file has ", *got));
}

absl::Status Reader::Load(const std::vector<std::string>& more_files, const PerfDataOptions& options) {
  FileHeader header = {};
  if (input_.size() < kPipeHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(At(0), "no perf.data file: only ", input_.size(), " bytes long"));
  }
  if (absl::Status status = ReadExactly(0, &header, kPipeHeaderBytes, "the header"); !status.ok())
    return status;
  const absl::string_view magic(header.magic, sizeof header.magic);
  if (magic == "2ELIFREP") {
    return absl::InvalidArgumentError(absl::StrCat(At(0), "written by a machine of the other byte order"));
  }
  if (magic == "PERFFILE") {
    return absl::InvalidArgumentError(absl::StrCat(
        At(0), "a perf.data file of version 1, as perf wrote them before Linux 3.6; only version 2 is read"));
  }
  if (magic != "PERFILE2") {
    return absl::InvalidArgumentError(
        absl::StrCat(At(0), "no perf.data file: begins with \"", absl::CEscape(magic), "\""));
  }

  std::vector<RecordStream::Segment> segments;
  if (header.size == kPipeHeaderBytes) {
    pipe_mode_ = true;
    segments.push_back({name_, &input_, kPipeHeaderBytes, input_.size()});
  } else {
    if (header.size < kHeaderBytesWithoutFeatures || header.size > kMaxAttrBytes) {
      return absl::DataLossError(absl::StrCat(At(8), "the header claims a size of ", header.size, " bytes"));
    }
    const size_t known = header.size < sizeof header ? kHeaderBytesWithoutFeatures : sizeof header;
    if (absl::Status status = ReadExactly(0, &header, known, "the header"); !status.ok()) return status;
    if (absl::Status status = LoadFileMode(header, &segments); !status.ok()) return status;
  }
  if (absl::Status status = AddMoreFiles(more_files, options, &segments); !status.ok()) return status;
  stream_ = std::make_unique<RecordStream>(std::move(segments));
  return absl::OkStatus();
}

absl::Status Reader::LoadFileMode(const FileHeader& header, std::vector<RecordStream::Segment>* segments) {
  if (absl::Status status = LoadEvents(header); !status.ok()) return status;
  const uint64_t size = input_.size();
  if (header.data.offset > size || header.data.offset < header.size) {
    return absl::DataLossError(absl::StrCat(At(offsetof(FileHeader, data)), "the data section begins at ",
                                            header.data.offset, " in a file of ", size, " bytes"));
  }
  uint64_t end = size;
  if (header.data.size == 0 && size > header.data.offset) {
    // perf record fills the size in when it ends; the feature sections are written then, too.
    unfinished_ = true;
    problems_.push_back(
        absl::StrCat(name_,
                     ": perf record did not end properly; read to the end of the file, without "
                     "build ids and names of events"));
  } else if (header.data.size > size - header.data.offset) {
    problems_.push_back(absl::StrCat(
        name_, ": offset ", size, ": the file ends ", header.data.size - (size - header.data.offset),
        " bytes before its data section does; build ids and names of events are missing"));
  } else {
    end = header.data.offset + header.data.size;
    LoadFeatures(header, end);
  }
  segments->push_back({name_, &input_, header.data.offset, end});
  return absl::OkStatus();
}

absl::Status Reader::LoadEvents(const FileHeader& header) {
  const uint64_t stride = header.attr_size;
  if (stride < kFirstAttrBytes + sizeof(Section) || stride > kMaxAttrBytes) {
    return absl::DataLossError(absl::StrCat(At(offsetof(FileHeader, attr_size)),
                                            "an event's entry claims a size of ", stride, " bytes"));
  }
  const uint64_t count = header.attrs.size / stride;
  if (count == 0 || count > kMaxEvents) {
    return absl::DataLossError(
        absl::StrCat(At(offsetof(FileHeader, attrs)), "the file claims ", count, " events"));
  }
  std::vector<uint8_t> entry(stride);
  std::vector<uint64_t> ids;
  uint64_t all_ids = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (header.attrs.offset > input_.size()) {
      return absl::DataLossError(absl::StrCat(At(offsetof(FileHeader, attrs)), "the events begin at ",
                                              header.attrs.offset, " in a file of ", input_.size(),
                                              " bytes"));
    }
    const uint64_t offset = header.attrs.offset + i * stride;
    if (absl::Status status = ReadExactly(offset, entry.data(), entry.size(), "an event's entry");
        !status.ok()) {
      return status;
    }
    Section where;
    std::memcpy(&where, entry.data() + stride - sizeof where, sizeof where);
    const uint64_t id_count = where.size / sizeof(uint64_t);
    all_ids += id_count;
    if (id_count > kMaxIds || all_ids > kMaxIds) {
      return absl::DataLossError(
          absl::StrCat(At(offset), "event ", i + 1, " claims ids of ", where.size, " bytes"));
    }
    ids.resize(id_count);
    if (absl::Status status =
            ReadExactly(where.offset, ids.data(), id_count * sizeof(uint64_t), "a list of event ids");
        !status.ok()) {
      return status;
    }
    if (absl::Status status = events_.Add(absl::MakeConstSpan(entry).first(stride - sizeof where), ids);
        !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(At(offset), status.message()));
    }
  }
  return absl::OkStatus();
}

void Reader::LoadFeatures(const FileHeader& header, uint64_t table_offset) {
  uint64_t entry = table_offset;
  std::vector<uint8_t> bytes;
  for (uint32_t feature = 0; feature < kFeatureBits; ++feature) {
    if ((header.features[feature / 64] >> (feature % 64) & 1) == 0) continue;
    Section section;
    absl::Status status = ReadExactly(entry, &section, sizeof section, "the table of features");
    if (!status.ok()) {
      problems_.push_back(std::string(status.message()));
      return;
    }
    entry += sizeof section;
    if (feature == kFeatureDirFormat) threads_folder_ = true;
    if (!IsFeatureUsed(feature)) continue;
    if (section.size > kMaxFeatureBytes || section.offset > input_.size() ||
        section.size > input_.size() - section.offset) {
      problems_.push_back(absl::StrCat(At(entry - sizeof section), "feature ", FeatureName(feature),
                                       " claims ", section.size, " bytes at ", section.offset, "; left out"));
      continue;
    }
    bytes.resize(section.size);
    status = ReadExactly(section.offset, bytes.data(), bytes.size(), FeatureName(feature));
    if (status.ok()) {
      status = ParseFeature(feature, bytes, &features_, &events_);
      if (!status.ok())
        status = absl::Status(status.code(), absl::StrCat(At(section.offset), status.message()));
    }
    if (!status.ok()) problems_.push_back(std::string(status.message()));
  }
}

absl::Status Reader::AddMoreFiles(const std::vector<std::string>& files, const PerfDataOptions& options,
                                  std::vector<RecordStream::Segment>* segments) {
  if (threads_folder_ && files.empty()) {
    problems_.push_back(absl::StrCat(
        name_, ": recorded with --threads, the records lie in data.N beside it: give the folder instead"));
  }
  for (const std::string& path : files) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return absl::ErrnoToStatus(errno, path);
    absl::StatusOr<PerfDataInput> input =
        MakeInput(fd, path, options.temporary_folder, options.max_unpacked_bytes);
    if (!input.ok()) return input.status();
    more_inputs_.push_back(std::make_unique<PerfDataInput>(*std::move(input)));
    segments->push_back({path, more_inputs_.back().get(), 0, more_inputs_.back()->size()});
  }
  return absl::OkStatus();
}

absl::Status Reader::TakeIn(const RecordStream::Record& record, uint32_t type) {
  const absl::Span<const uint8_t> body = record.bytes.subspan(sizeof(RecordHeader));
  absl::Status status;
  switch (type) {
    case kHeaderAttr: {
      if (!pipe_mode_) return absl::OkStatus();
      uint32_t size = 0;
      if (body.size() >= kFirstAttrBytes) std::memcpy(&size, body.data() + 4, sizeof size);
      if (size == 0) size = kFirstAttrBytes;
      if (size < kFirstAttrBytes || size > body.size() || events_.events().size() >= kMaxEvents) {
        return absl::DataLossError(absl::StrCat(At(record.offset), "an event's attributes claim ", size,
                                                " bytes in a record of ", record.bytes.size()));
      }
      std::vector<uint64_t> ids((body.size() - size) / sizeof(uint64_t));
      if (!ids.empty()) std::memcpy(ids.data(), body.data() + size, ids.size() * sizeof(uint64_t));
      status = events_.Add(body.first(size), ids);
      return status.ok() ? status
                         : absl::Status(status.code(), absl::StrCat(At(record.offset), status.message()));
    }
    case kHeaderBuildId:
      status = ParseBuildId(record.bytes, &features_);
      break;
    case kHeaderFeature: {
      uint64_t feature;
      if (body.size() < sizeof feature) break;
      std::memcpy(&feature, body.data(), sizeof feature);
      if (feature < kFeatureBits && IsFeatureUsed(static_cast<uint32_t>(feature))) {
        status =
            ParseFeature(static_cast<uint32_t>(feature), body.subspan(sizeof feature), &features_, &events_);
      }
      break;
    }
    case kEventUpdate: {
      uint64_t words[2];
      if (body.size() <= sizeof words) break;
      std::memcpy(words, body.data(), sizeof words);
      if (words[0] != kEventUpdateName) break;
      const char* text = reinterpret_cast<const char*>(body.data() + sizeof words);
      events_.SetName(0, {words[1]}, std::string(text, strnlen(text, body.size() - sizeof words)));
      break;
    }
    default:
      break;
  }
  if (!status.ok() && problems_.size() < 64)
    problems_.push_back(absl::StrCat(At(record.offset), status.message()));
  return absl::OkStatus();
}

absl::StatusOr<bool> Reader::Next(DataRecord* record) {
  RecordStream::Record raw;
  absl::StatusOr<bool> got = stream_->Next(&raw);
  if (!got.ok() || !*got) return got;
  RecordHeader header;
  std::memcpy(&header, raw.bytes.data(), sizeof header);
  *record = {raw.bytes, header.type, nullptr, raw.offset, false};
  if (header.type < kFirstUserRecordType) {
    record->event = events_.Find(raw.bytes, &record->unknown_id);
  } else if (raw.segment == 0 && raw.offset >= taken_in_until_) {
    taken_in_until_ = raw.offset + 1;
    if (absl::Status status = TakeIn(raw, header.type); !status.ok()) return status;
  }
  return true;
}

// The data.N of a folder `perf record --threads` made, by N.
absl::StatusOr<std::vector<std::string>> ThreadFiles(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(folder.c_str()), closedir);
  if (directory == nullptr) return absl::ErrnoToStatus(errno, folder);
  std::vector<std::pair<uint32_t, std::string>> found;
  while (const dirent* entry = readdir(directory.get())) {
    absl::string_view name = entry->d_name;
    uint32_t number;
    if (absl::ConsumePrefix(&name, "data.") && absl::SimpleAtoi(name, &number)) {
      found.emplace_back(number, absl::StrCat(folder, "/", entry->d_name));
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [number, path] : found) paths.push_back(std::move(path));
  return paths;
}

absl::StatusOr<std::unique_ptr<PerfDataFile>> Make(int fd, const std::string& name,
                                                   const std::vector<std::string>& more_files,
                                                   const PerfDataOptions& options) {
  absl::StatusOr<PerfDataInput> input =
      MakeInput(fd, name, options.temporary_folder, options.max_unpacked_bytes);
  if (!input.ok()) return input.status();
  auto reader = std::make_unique<Reader>(*std::move(input), name);
  if (absl::Status status = reader->Load(more_files, options); !status.ok()) return status;
  return reader;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PerfDataFile>> PerfDataFile::Open(const std::string& path,
                                                                 const PerfDataOptions& options) {
  if (path == "-") {
    const int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) return absl::ErrnoToStatus(errno, "standard input");
    return Make(fd, "standard input", {}, options);
  }
  std::string file = path;
  std::vector<std::string> more_files;
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    file = absl::StrCat(absl::StripSuffix(path, "/"), "/data");
    absl::StatusOr<std::vector<std::string>> found = ThreadFiles(path);
    if (!found.ok()) return found.status();
    more_files = *std::move(found);
  }
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, file);
  return Make(fd, file, more_files, options);
}

absl::StatusOr<std::unique_ptr<PerfDataFile>> PerfDataFile::FromDescriptor(int fd, const std::string& name,
                                                                           const PerfDataOptions& options) {
  return Make(fd, name, {}, options);
}

}  // namespace xenprof::perf
