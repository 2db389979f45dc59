#include "xenprof/export/text.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "xenprof/export/function_totals.h"
#include "xenprof/export/summary.h"

namespace xenprof::exporter {

using profile::Profile;

namespace {

constexpr size_t kMaxDetails = 40;

class TextReport {
 public:
  TextReport(const Profile& profile, const TextOptions& options) : profile_(profile), options_(options) {}

  std::string Build() {
    AddSurroundings();
    AddOrigins();
    AddDomains();
    AddFunctions();
    AddUnnamed();
    return std::move(out_);
  }
  uint64_t written() const { return written_; }
  uint64_t self() const { return self_; }

 private:
  void AddField(absl::string_view name, absl::string_view value) {
    absl::StrAppendFormat(&out_, "%-10s %s\n", name, value);
  }

  void AddSurroundings() {
    for (const profile::Host& host : profile_.hosts) {
      AddField("host", HostText(host));
      AddField("event", EventText(host));
    }
    AddField("window", WindowText(profile_));
    std::string samples = WithCommas(profile_.totals.samples);
    if (profile_.totals.time_ns > 0) {
      absl::StrAppend(&samples, ", standing for ", DurationText(profile_.totals.time_ns), " of CPU time");
    }
    AddField("samples", samples);
    for (const profile::ModeUse& use : profile_.modes) AddField("mode", ModeText(profile_, use));
    for (const std::string& sentence : BlindSpots(profile_)) AddField("unseen", sentence);
    const CoverageText coverage = DescribeCoverage(profile_);
    AddField("coverage", coverage.verdict);
    for (size_t i = 0; i < coverage.details.size() && i < kMaxDetails; ++i) AddField("", coverage.details[i]);
    if (coverage.details.size() > kMaxDetails) {
      AddField("", absl::StrCat("and ", coverage.details.size() - kMaxDetails, " more"));
    }
    for (const std::string& warning : Warnings(profile_)) AddField("warning", warning);
    const profile::Totals& totals = profile_.totals;
    if (totals.truncated > 0) {
      AddField("stacks", absl::StrCat(ShareText(totals.truncated, totals.samples),
                                      " reached the kernel's limit of frames: their callers are missing"));
    }
    if (totals.no_user_callers > 0) {
      AddField("stacks", absl::StrCat(ShareText(totals.no_user_callers, totals.samples),
                                      " were taken in user code of a PV dom0, which the kernel cannot walk: "
                                      "the function alone"));
    }
    if (totals.guessed_origin > 0) {
      AddField("origins", absl::StrCat(ShareText(totals.guessed_origin, totals.samples), " are inferred"));
    }
  }

  void AddOrigins() {
    std::vector<std::pair<uint64_t, int>> rows;
    for (int i = 0; i < kOriginCount; ++i) {
      const uint64_t count = profile_.totals.by_origin[static_cast<size_t>(i)];
      written_ += count;
      if (count > 0) rows.emplace_back(count, i);
    }
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    out_ += "\nOrigins\n      share      samples  origin\n";
    for (const auto& [count, origin] : rows) {
      AddRow(count, OriginName(static_cast<Origin>(origin)));
    }
  }

  void AddRow(uint64_t count, absl::string_view what) {
    absl::StrAppendFormat(&out_, "%11s %12s  %s\n", ShareText(count, profile_.totals.samples),
                          WithCommas(count), what);
  }

  void AddDomains() {
    std::map<uint32_t, uint64_t> domains;
    for (const profile::Sample& sample : profile_.samples) {
      if (sample.domain != 0) domains[sample.domain] += sample.count;
    }
    if (domains.empty()) return;
    std::vector<std::pair<uint64_t, uint32_t>> rows;
    for (const auto& [domain, count] : domains) rows.emplace_back(count, domain);
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    out_ += "\nDomains\n      share      samples  domain\n";
    for (const auto& [count, domain] : rows) AddRow(count, DomainText(profile_, profile_.domains[domain]));
  }

  std::string FunctionText(uint32_t id) const {
    const profile::Function& function = profile_.functions[id];
    std::string text = Printable(profile_.str(function.name));
    // An unnamed one has its module in its name already.
    if (function.named) absl::StrAppend(&text, "  ", Printable(profile_.str(function.module)));
    return text;
  }

  void AddFunctions() {
    const FunctionTotals totals = SumFunctions(profile_);
    uint64_t self = totals.without_stack;
    for (const FunctionTotal& function : totals.functions) self += function.self;
    self_ = self;
    const size_t rows = options_.functions == 0 ? totals.functions.size()
                                                : std::min(options_.functions, totals.functions.size());
    out_ += "\nHottest functions\n       self      samples      total  kind          function  module\n";
    for (size_t i = 0; i < rows; ++i) {
      const FunctionTotal& row = totals.functions[i];
      absl::StrAppendFormat(&out_, "%11s %12s %10s  %-12s  %s\n",
                            ShareText(row.self, profile_.totals.samples), WithCommas(row.self),
                            ShareText(row.total, profile_.totals.samples),
                            FrameKindName(profile_.functions[row.function].kind), FunctionText(row.function));
    }
    if (rows < totals.functions.size()) {
      absl::StrAppendFormat(&out_, "  and %s more functions\n", WithCommas(totals.functions.size() - rows));
    }
    if (totals.without_stack > 0) AddRow(totals.without_stack, "samples without any frame");
    if (options_.lines == 0) return;
    out_ += "\nHottest lines\n       self      samples  function  line\n";
    if (totals.lines.empty()) out_ += "  none: the chunks carry no source lines\n";
    for (size_t i = 0; i < std::min(options_.lines, totals.lines.size()); ++i) {
      const LineTotal& row = totals.lines[i];
      AddRow(row.self, absl::StrCat(Printable(profile_.str(profile_.functions[row.function].name)), "  ",
                                    Printable(profile_.str(row.file)), ":", row.line));
    }
  }

  void AddUnnamed() {
    std::map<std::string, uint64_t> problems;
    for (const profile::Sample& sample : profile_.samples) {
      if (sample.node == 0) continue;
      const profile::Frame& leaf = profile_.frames[profile_.nodes[sample.node].frame];
      const profile::Function& function = profile_.function_of(leaf);
      if (function.named) continue;
      const profile::Binary& binary = profile_.binaries[function.binary];
      if (binary.symbol_problem == 0) continue;
      const std::string name = Printable(profile_.str(binary.name));
      const std::string problem = Printable(profile_.str(binary.symbol_problem));
      // Most problems name their file themselves.
      problems[absl::StrContains(problem, name) ? problem : absl::StrCat(name, ": ", problem)] +=
          sample.count;
    }
    if (problems.empty()) return;
    std::vector<std::pair<uint64_t, std::string>> rows;
    for (const auto& [text, count] : problems) rows.emplace_back(count, text);
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    out_ += "\nFunctions without a name\n      share      samples  why\n";
    for (size_t i = 0; i < rows.size() && i < 10; ++i) AddRow(rows[i].first, rows[i].second);
  }

  const Profile& profile_;
  const TextOptions options_;
  std::string out_;
  uint64_t written_ = 0;  // samples, added over origins
  uint64_t self_ = 0;     // and over functions
};

}  // namespace

absl::Status ExportText(const Profile& profile, const TextOptions& options, Output* output) {
  if (options.lines > 0 && profile.granularity != profile::Granularity::kAddress) {
    return absl::InvalidArgumentError("source lines are told of a profile by address");
  }
  TextReport report(profile, options);
  const std::string text = report.Build();
  absl::Status total = CheckTotal("text", report.written(), profile.totals.samples);
  if (total.ok()) total = CheckTotal("text", report.self(), profile.totals.samples);
  if (!total.ok()) return total;
  return output->Write(text);
}

}  // namespace xenprof::exporter
