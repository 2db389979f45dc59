#include "xenprof/xen/vpmu_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace xenprof::xen {

absl::string_view PmuModeName(PmuMode mode) {
  switch (mode) {
    case PmuMode::kOff:
      return "off";
    case PmuMode::kSelf:
      return "self";
    case PmuMode::kHv:
      return "hv";
    case PmuMode::kAll:
      return "all";
  }
  return "off";
}

std::optional<PmuMode> ParsePmuMode(absl::string_view name) {
  for (PmuMode mode : {PmuMode::kOff, PmuMode::kSelf, PmuMode::kHv, PmuMode::kAll}) {
    if (name == PmuModeName(mode)) return mode;
  }
  return std::nullopt;
}

std::string SysfsPmuFiles::Path(PmuFile file) const {
  return absl::StrCat(sysfs_root_, "/hypervisor/pmu/", file == PmuFile::kMode ? "pmu_mode" : "pmu_features");
}

PmuFiles::ReadResult SysfsPmuFiles::Read(PmuFile file) {
  ReadResult result;
  const int fd = open(Path(file).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    result.error = errno;
    return result;
  }
  char buffer[256];  // a sysfs value; what is longer is not one of these two
  ssize_t got;
  do {
    got = read(fd, buffer, sizeof(buffer));
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    result.error = errno;
  } else {
    result.text.assign(buffer, static_cast<size_t>(got));
  }
  close(fd);
  return result;
}

int SysfsPmuFiles::Write(PmuFile file, absl::string_view bytes) {
  // O_TRUNC means nothing to sysfs and keeps a plain file in a test tree exact.
  const int fd = open(Path(file).c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (fd < 0) return errno;
  ssize_t put;
  do {
    put = write(fd, bytes.data(), bytes.size());
  } while (put < 0 && errno == EINTR);
  int error = 0;
  if (put < 0) {
    error = errno;
  } else if (static_cast<size_t>(put) != bytes.size()) {
    error = EIO;
  }
  close(fd);
  return error;
}

int ReadPmuMode(PmuFiles& files, PmuMode* mode) {
  const PmuFiles::ReadResult result = files.Read(PmuFile::kMode);
  if (result.error != 0) return result.error;
  const std::optional<PmuMode> parsed = ParsePmuMode(absl::StripAsciiWhitespace(result.text));
  if (!parsed) return EPROTO;
  *mode = *parsed;
  return 0;
}

int ReadPmuFeatures(PmuFiles& files, uint64_t* features) {
  const PmuFiles::ReadResult result = files.Read(PmuFile::kFeatures);
  if (result.error != 0) return result.error;
  absl::string_view text = absl::StripAsciiWhitespace(result.text);
  if (!absl::ConsumePrefix(&text, "0x") || !absl::SimpleHexAtoi(text, features)) return EPROTO;
  return 0;
}

int WritePmuMode(PmuFiles& files, PmuMode mode) {
  return files.Write(PmuFile::kMode, absl::StrCat(PmuModeName(mode), "\n"));
}

int WritePmuFeatures(PmuFiles& files, uint64_t features) {
  return files.Write(PmuFile::kFeatures, absl::StrFormat("0x%x\n", features));
}

}  // namespace xenprof::xen
