#include "daemon/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace xenprof::daemon {
namespace {

// systemd tells in JOURNAL_STREAM which device and inode the journal's end of stderr is; a daemon whose
// stderr was redirected since must not write prefixes there (systemd.exec(5)).
bool StderrIsJournal() {
  const char* stream = getenv("JOURNAL_STREAM");
  struct stat status;
  if (stream == nullptr || fstat(STDERR_FILENO, &status) != 0) return false;
  return absl::string_view(stream) == absl::StrCat(status.st_dev, ":", status.st_ino);
}

// sd-daemon(3): "<6>" and its like.
class PriorityFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const char* prefix = "<6>";
    if (message.level >= spdlog::level::err) {
      prefix = "<3>";
    } else if (message.level == spdlog::level::warn) {
      prefix = "<4>";
    } else if (message.level <= spdlog::level::debug) {
      prefix = "<7>";
    }
    out.append(prefix, prefix + 3);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<PriorityFlag>(); }
};

void Write(spdlog::level::level_enum level, absl::string_view message) {
  spdlog::default_logger_raw()->log(level, spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace

absl::Status SetUpLog(absl::string_view level) {
  spdlog::level::level_enum value;
  if (level == "debug") {
    value = spdlog::level::debug;
  } else if (level == "info") {
    value = spdlog::level::info;
  } else if (level == "warning") {
    value = spdlog::level::warn;
  } else if (level == "error") {
    value = spdlog::level::err;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("log level \"", level, "\": one of debug, info, warning, error is meant"));
  }
  auto logger =
      std::make_shared<spdlog::logger>("xenprofd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  if (StderrIsJournal()) {
    formatter->add_flag<PriorityFlag>('*').set_pattern("%*%v");
  } else {
    formatter->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %v");
  }
  logger->set_formatter(std::move(formatter));
  logger->set_level(value);
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

void LogDebug(absl::string_view message) { Write(spdlog::level::debug, message); }
void LogInfo(absl::string_view message) { Write(spdlog::level::info, message); }
void LogWarning(absl::string_view message) { Write(spdlog::level::warn, message); }
void LogError(absl::string_view message) { Write(spdlog::level::err, message); }

}  // namespace xenprof::daemon
