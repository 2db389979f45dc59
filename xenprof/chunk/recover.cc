#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "xenprof/chunk/decoder.h"
#include "xenprof/chunk/folder.h"
#include "xenprof/chunk/partial_file.h"
#include "xenprof/chunk/reader.h"
#include "xenprof/chunk/seal.h"
#include "xenprof/chunk/store.h"
#include "xenprof/chunk/totals.h"

namespace xenprof::chunk {
namespace {

// Lets through what another boot cannot have changed unseen: files and hypervisors known by their build id.
class AfterReboot : public symbols::Symbolizer {
 public:
  explicit AfterReboot(symbols::Symbolizer* symbolizer) : symbolizer_(symbolizer) {}
  void Note(const symbols::MappingInfo&) override {}
  symbols::Resolved Resolve(const symbols::MappingInfo& mapping,
                            absl::Span<const uint64_t> addresses) override {
    if (!mapping.build_id.empty() && (mapping.is_file || mapping.kind == FrameKind::kHypervisor)) {
      return symbolizer_->Resolve(mapping, addresses);
    }
    symbols::Resolved resolved;
    resolved.problem = "recovered after another boot: the names of then are gone";
    return resolved;
  }

 private:
  symbols::Symbolizer* symbolizer_;
};

std::string RunningBootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return std::string(absl::StripAsciiWhitespace(id));
}

// What can be read of a partial file from its start without a hole.
struct Readable {
  std::unique_ptr<ChunkDecoder> decoder;
  proto::Header header;
  Totals totals;
  uint64_t keep_bytes = 0;  // up to the end of the last block
  bool complete = false;    // has its trailer: only the renaming was missing
  absl::Status end;         // why reading ended before the file did
};

absl::StatusOr<Readable> ReadPartial(const std::string& partial_path) {
  Readable readable;
  absl::StatusOr<std::unique_ptr<ChunkReader>> reader = ChunkReader::Open(partial_path);
  if (absl::IsDataLoss(reader.status())) {
    readable.end = reader.status();
    return readable;
  }
  if (!reader.ok()) return reader.status();
  readable.header = (*reader)->header();
  readable.decoder = std::make_unique<ChunkDecoder>(readable.header);
  proto::Payload payload;
  while (true) {
    const uint64_t unread = (*reader)->next_offset();
    absl::StatusOr<bool> more = (*reader)->Next(&payload);
    if (more.ok() && !*more) break;
    absl::Status status = more.status();
    if (status.ok()) {
      status = readable.decoder->Add(payload);
      if (!status.ok()) status = (*reader)->ErrorHere(status.message());
    }
    if (!status.ok()) {
      if (!absl::IsDataLoss(status)) return status;
      readable.end = status;
      readable.complete = false;
      break;
    }
    if (payload.has_trailer()) readable.complete = true;
    if (!payload.has_block()) continue;
    readable.totals.AddBlock(unread, payload.block(), *readable.decoder);
    readable.keep_bytes = (*reader)->next_offset();
  }
  return readable;
}

// One partial file. An error leaves it as it is.
absl::Status RecoverFile(const std::string& path, symbols::Symbolizer* symbolizer, const std::string& boot_id,
                         RecoveryReport* report) {
  const std::string partial_path = absl::StrCat(path, kPartialSuffix);
  absl::StatusOr<std::unique_ptr<PartialFile>> file = PartialFile::Resume(path);
  if (!file.ok()) return file.status();

  struct stat partial, sealed;
  if (stat(path.c_str(), &sealed) == 0 && stat(partial_path.c_str(), &partial) == 0 &&
      sealed.st_ino == partial.st_ino && sealed.st_dev == partial.st_dev) {
    PartialFile::Remove(partial_path);  // a second name of the sealed chunk
    return absl::OkStatus();
  }
  absl::StatusOr<Readable> readable = ReadPartial(partial_path);
  if (!readable.ok()) return readable.status();
  if (!readable->end.ok()) report->messages.push_back(std::string(readable->end.message()));
  if (readable->totals.blocks() == 0) {
    report->messages.push_back(absl::StrCat(partial_path, ": removed: it has no whole block"));
    report->discarded.push_back(partial_path);
    PartialFile::Remove(partial_path);
    return absl::OkStatus();
  }
  if (readable->complete) {
    absl::Status status = (*file)->Publish(true, false);
    if (status.ok()) report->sealed.push_back(path);
    return status;
  }
  const uint64_t cut = (*file)->bytes() - readable->keep_bytes;
  if (cut != 0) {
    report->messages.push_back(absl::StrCat(partial_path, ": cut ", cut,
                                            " bytes behind its last good block, which ends at offset ",
                                            readable->keep_bytes));
    absl::Status status = (*file)->CutBack(readable->keep_bytes);
    if (!status.ok()) return status;
  }
  AfterReboot after_reboot(symbolizer);
  const std::string& sampled_boot = readable->header.host().boot_id();
  const bool other_boot = !sampled_boot.empty() && sampled_boot != boot_id;
  absl::Status status =
      SealFile(file->get(), readable->decoder->tables(),
               symbolizer != nullptr && other_boot ? &after_reboot : symbolizer, readable->totals,
               readable->decoder->mode(), proto::Trailer::RECOVERED, WriterOptions{});
  if (status.ok()) report->sealed.push_back(path);
  return status;
}

}  // namespace

absl::StatusOr<RecoveryReport> Recover(const std::string& folder, symbols::Symbolizer* symbolizer,
                                       std::string boot_id) {
  absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(folder);
  if (!entries.ok()) return entries.status();
  if (boot_id.empty()) boot_id = RunningBootId();
  RecoveryReport report;
  for (const FolderEntry& entry : *entries) {
    const std::string path = absl::StrCat(folder, "/", entry.name);
    if (absl::EndsWith(entry.name, absl::StrCat(kChunkSuffix, kPartialSuffix))) {
      const absl::Status status =
          RecoverFile(path.substr(0, path.size() - kPartialSuffix.size()), symbolizer, boot_id, &report);
      // One file that cannot be helped does not keep the others from it.
      if (!status.ok()) report.messages.push_back(absl::StrCat(path, ": left alone: ", status.message()));
    } else if (absl::EndsWith(entry.name, ".tmp")) {
      if (unlink(path.c_str()) == 0) report.discarded.push_back(path);
    }
  }
  return report;
}

}  // namespace xenprof::chunk
