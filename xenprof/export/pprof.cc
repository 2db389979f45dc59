#include "xenprof/export/pprof.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "pprof.pb.h"
#include "xenprof/base/utf8.h"
#include "xenprof/export/deflate.h"
#include "xenprof/export/roots.h"
#include "xenprof/export/summary.h"

namespace xenprof::exporter {

using profile::Profile;

namespace {

// Fields as protobuf writes them: key (number << 3 | wire type), then a varint or length and bytes.
void AppendVarint(uint64_t value, std::string* out) {
  if (value < 0x80) return out->push_back(static_cast<char>(value));
  char bytes[10];
  size_t count = 0;
  for (; value >= 0x80; value >>= 7) bytes[count++] = static_cast<char>(value | 0x80);
  bytes[count++] = static_cast<char>(value);
  out->append(bytes, count);
}

void AppendNumber(int field, int64_t value, std::string* out) {
  if (value == 0) return;  // what a reader takes for an absent one
  AppendVarint(static_cast<uint64_t>(field) << 3, out);
  AppendVarint(static_cast<uint64_t>(value), out);
}

void AppendBytes(int field, absl::string_view bytes, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | 2, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes.data(), bytes.size());
}

class PprofBuilder {
 public:
  explicit PprofBuilder(const Profile& profile) : profile_(profile) { String(""); }

  // Empty when it would be larger than a message may be.
  std::string Build() {
    AddTypes();
    AddMappings();
    AddFunctions();
    AddLocations();
    AddSamples();
    AddComments();
    // Strings were collected beside the message.
    for (const std::string& text : strings_in_order_) out_.add_string_table(text);
    // Fields in the order of their numbers, as protobuf itself would write them: the samples come second.
    pprof::Profile types;
    types.mutable_sample_type()->Swap(out_.mutable_sample_type());
    std::string message = types.SerializeAsString();
    message += samples_;
    samples_ = std::string();
    if (message.size() + out_.ByteSizeLong() > std::numeric_limits<int32_t>::max()) return "";
    out_.AppendToString(&message);
    return message;
  }
  uint64_t written() const { return written_; }

 private:
  // pprof readers insist on UTF-8.
  int64_t String(absl::string_view text) {
    const auto known = strings_.find(text);
    if (known != strings_.end()) return known->second;
    std::string clean = ToUtf8(text);
    const auto same = strings_.find(clean);
    if (same != strings_.end()) return same->second;
    const auto id = static_cast<int64_t>(strings_in_order_.size());
    strings_in_order_.push_back(std::move(clean));
    strings_.emplace(strings_in_order_.back(), id);
    return id;
  }

  void AddTypes() {
    const bool has_time = profile_.totals.time_ns > 0;
    const auto set = [&](pprof::ValueType* type, absl::string_view name, absl::string_view unit) {
      type->set_type_string(String(name));
      type->set_unit_string(String(unit));
    };
    set(out_.add_sample_type(), "samples", "count");
    if (has_time) set(out_.add_sample_type(), "cpu", "nanoseconds");
    values_ = has_time ? 2 : 1;
    const profile::Host* host = profile_.hosts.empty() ? nullptr : &profile_.hosts.front();
    if (has_time) {
      set(out_.mutable_period_type(), "cpu", "nanoseconds");
      if (host != nullptr && host->frequency_hz > 0) {
        out_.set_period(1'000'000'000 / host->frequency_hz);
      } else if (profile_.totals.samples > 0) {
        out_.set_period(static_cast<int64_t>(profile_.totals.time_ns / profile_.totals.samples));
      }
      out_.set_default_sample_type_string(String("cpu"));
    } else if (host != nullptr) {
      set(out_.mutable_period_type(), host->event.empty() ? "samples" : host->event, "count");
      out_.set_period(static_cast<int64_t>(std::max<uint64_t>(host->period, 1)));
    }
    out_.set_time_nanos(profile_.start_ns);
    out_.set_duration_nanos(std::max<int64_t>(profile_.end_ns - profile_.start_ns, 0));
  }

  void AddMappings() {
    // Which of them carry what, and how far their addresses go.
    std::vector<bool> used(profile_.binaries.size()), named(profile_.binaries.size()),
        lined(profile_.binaries.size()), inlined(profile_.binaries.size());
    std::vector<uint64_t> highest(profile_.binaries.size());
    std::vector<uint64_t> lowest(profile_.binaries.size(), std::numeric_limits<uint64_t>::max());
    for (const profile::Frame& frame : profile_.frames) {
      used[frame.binary] = true;
      highest[frame.binary] = std::max(highest[frame.binary], frame.address);
      lowest[frame.binary] = std::min(lowest[frame.binary], frame.address);
      if (profile_.function_of(frame).named) named[frame.binary] = true;
      if (profile_.line(frame).line > 0) lined[frame.binary] = true;
      if (frame.line_count > 1) inlined[frame.binary] = true;
    }
    mapping_ids_.resize(profile_.binaries.size());
    const auto add = [&](size_t i) {
      const profile::Binary& binary = profile_.binaries[i];
      pprof::Mapping* mapping = out_.add_mapping();
      mapping->set_id(out_.mapping_size());
      mapping_ids_[i] = mapping->id();
      if (binary.is_file) {
        mapping->set_memory_limit(highest[i] + 1);
      } else {
        mapping->set_memory_start(binary.start == 0 ? lowest[i] : std::min(binary.start, lowest[i]));
        // A limit beyond the last address has no number: the last one then.
        const uint64_t past_highest =
            highest[i] == std::numeric_limits<uint64_t>::max() ? highest[i] : highest[i] + 1;
        mapping->set_memory_limit(std::max(binary.end, past_highest));
      }
      const absl::string_view name = profile_.str(binary.name);
      mapping->set_filename_string(String(name.empty() ? "[unknown]" : name));
      mapping->set_build_id_string(String(HexText(binary.build_id)));
      mapping->set_has_functions(named[i]);
      mapping->set_has_filenames(lined[i]);
      mapping->set_has_line_numbers(lined[i]);
      mapping->set_has_inline_frames(inlined[i]);
    };
    // Viewers take the first for the main program: of a whole host, that is its kernel.
    size_t first = profile_.binaries.size();
    for (size_t i = 0; i < profile_.binaries.size() && first == profile_.binaries.size(); ++i) {
      if (used[i] && profile_.str(profile_.binaries[i].name) == "[kernel]") first = i;
    }
    if (first < profile_.binaries.size()) add(first);
    for (size_t i = 0; i < profile_.binaries.size(); ++i) {
      if (used[i] && i != first) add(i);
    }
  }

  void AddFunctions() {
    // pprof knows a function's file, xenprof a line's: the first line seen says it.
    std::vector<profile::StringId> files(profile_.functions.size());
    for (const profile::Line& line : profile_.lines) {
      if (files[line.function] == 0) files[line.function] = line.file;
    }
    for (size_t i = 0; i < profile_.functions.size(); ++i) {
      pprof::Function* function = out_.add_function();
      function->set_id(i + 1);
      const int64_t name = String(profile_.str(profile_.functions[i].name));
      function->set_name_string(name);
      function->set_system_name_string(name);
      function->set_filename_string(String(profile_.str(files[i])));
    }
  }

  void AddLocations() {
    for (size_t i = 0; i < profile_.frames.size(); ++i) {
      const profile::Frame& frame = profile_.frames[i];
      pprof::Location* location = out_.add_location();
      location->set_id(i + 1);
      location->set_mapping_id(mapping_ids_[frame.binary]);
      location->set_address(frame.address);
      for (uint32_t l = 0; l < frame.line_count; ++l) {
        pprof::Line* line = location->add_line();
        line->set_function_id(profile_.line(frame, l).function + 1);
        line->set_line(profile_.line(frame, l).line);
      }
    }
    // A sample without a frame would be invisible in most viewers.
    for (const profile::Sample& sample : profile_.samples) {
      if (sample.node != 0) continue;
      pprof::Function* function = out_.add_function();
      function->set_id(profile_.functions.size() + 1);
      function->set_name_string(String("[no stack]"));
      pprof::Location* location = out_.add_location();
      location->set_id(profile_.frames.size() + 1);
      location->add_line()->set_function_id(function->id());
      break;
    }
  }

  void AddSamples() {
    const int64_t origin_key = String("origin"), domain_key = String("domain"), host_key = String("host"),
                  pid_key = String("pid"), tid_key = String("tid"), cpu_key = String("cpu");
    std::vector<int64_t> origins, domains, hosts;
    for (int i = 0; i < kOriginCount; ++i) origins.push_back(String(OriginName(static_cast<Origin>(i))));
    for (const profile::Domain& domain : profile_.domains)
      domains.push_back(String(DomainText(profile_, domain)));
    for (const profile::Host& host : profile_.hosts) hosts.push_back(String(host.hostname));
    // By hand: a message object for each sample and label would be ten times the size of the whole output.
    std::string locations, values, label, message;
    for (const profile::Sample& sample : profile_.samples) {
      locations.clear();
      for (uint32_t node = sample.node; node != 0; node = profile_.nodes[node].parent) {
        AppendVarint(profile_.nodes[node].frame + 1, &locations);
      }
      if (sample.node == 0) AppendVarint(profile_.frames.size() + 1, &locations);
      values.clear();
      AppendVarint(sample.count, &values);
      if (values_ > 1) AppendVarint(sample.time_ns, &values);
      written_ += sample.count;
      message.clear();
      AppendBytes(pprof::Sample::kLocationIdFieldNumber, locations, &message);
      AppendBytes(pprof::Sample::kValueFieldNumber, values, &message);
      const auto add_label = [&](int64_t key, int value_field, int64_t value) {
        label.clear();
        AppendNumber(pprof::Label::kKeyStringFieldNumber, key, &label);
        AppendNumber(value_field, value, &label);
        AppendBytes(pprof::Sample::kLabelFieldNumber, label, &message);
      };
      const auto add_string = [&](int64_t key, int64_t value) {
        add_label(key, pprof::Label::kStrStringFieldNumber, value);
      };
      const auto add_number = [&](int64_t key, int64_t value) {
        add_label(key, pprof::Label::kNumFieldNumber, value);
      };
      add_string(origin_key, origins[static_cast<size_t>(sample.origin)]);
      if (sample.domain != 0) add_string(domain_key, domains[sample.domain]);
      if (profile_.hosts.size() > 1) add_string(host_key, hosts[sample.host]);
      if (profile_.by_task && TaskIsMeaningful(sample.origin)) {
        add_number(pid_key, profile_.tasks[sample.task].pid);
        add_number(tid_key, profile_.tasks[sample.task].tid);
      }
      if (sample.cpu != profile::kAnyCpu) add_number(cpu_key, sample.cpu);
      AppendBytes(pprof::Profile::kSampleFieldNumber, message, &samples_);
    }
  }

  void AddComments() {
    const auto add = [&](const std::string& text) { out_.add_comment_string(String(text)); };
    for (const profile::Host& host : profile_.hosts) {
      add(absl::StrCat("host: ", HostText(host)));
      add(absl::StrCat("event: ", EventText(host)));
    }
    add(absl::StrCat("window: ", WindowText(profile_)));
    for (const profile::ModeUse& use : profile_.modes) add(absl::StrCat("mode: ", ModeText(profile_, use)));
    for (const std::string& sentence : BlindSpots(profile_)) add(absl::StrCat("blind spot: ", sentence));
    const CoverageText coverage = DescribeCoverage(profile_);
    add(absl::StrCat("coverage: ", coverage.verdict));
    for (const std::string& detail : coverage.details) add(absl::StrCat("coverage: ", detail));
    for (const std::string& warning : Warnings(profile_)) add(absl::StrCat("warning: ", warning));
  }

  const Profile& profile_;
  google::protobuf::Arena arena_;  // a hundred thousand small messages are a single one to free
  // All but the samples.
  pprof::Profile& out_ = *google::protobuf::Arena::CreateMessage<pprof::Profile>(&arena_);
  std::string samples_;                       // serialised
  std::deque<std::string> strings_in_order_;  // a deque: the views below stay good
  absl::flat_hash_map<absl::string_view, int64_t> strings_;
  std::vector<uint64_t> mapping_ids_;
  int values_ = 1;
  uint64_t written_ = 0;
};

}  // namespace

absl::Status ExportPprof(const Profile& profile, const PprofOptions& options, Output* output) {
  if (profile.granularity != profile::Granularity::kAddress) {
    return absl::InvalidArgumentError("the pprof export is made of a profile by address");
  }
  PprofBuilder builder(profile);
  const std::string message = builder.Build();
  absl::Status total = CheckTotal("pprof", builder.written(), profile.totals.samples);
  if (!total.ok()) return total;
  if (message.empty())
    return absl::InternalError("the pprof export is larger than a protobuf message may be (2 GiB)");
  absl::StatusOr<std::string> packed = Deflate(message, DeflateFormat::kGzip, options.gzip_level);
  if (!packed.ok()) return packed.status();
  return output->Write(*packed);
}

}  // namespace xenprof::exporter
