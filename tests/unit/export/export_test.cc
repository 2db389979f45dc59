#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "pprof.pb.h"
#include "tests/unit/profile/chunk_maker.h"
#include "xenprof/export/deflate.h"
#include "xenprof/export/flame_tree.h"
#include "xenprof/export/folded.h"
#include "xenprof/export/function_totals.h"
#include "xenprof/export/html.h"
#include "xenprof/export/pprof.h"
#include "xenprof/export/report_json.h"
#include "xenprof/export/summary.h"
#include "xenprof/export/text.h"

namespace xenprof::exporter {
namespace {

using profile::ChunkMaker;
using profile::Granularity;
using profile::Profile;
using profile::TemporaryFolder;
using testing::HasSubstr;
using testing::Not;

Profile Build(const std::string& path, Granularity granularity) {
  auto built =
      profile::BuildProfile(profile::Files({path}), {},
                            {.granularity = granularity, .by_cpu = granularity == Granularity::kAddress});
  EXPECT_TRUE(built.ok()) << built.status();
  return built.ok() ? *std::move(built) : Profile();
}

Profile XenHost(Granularity granularity = Granularity::kFunction) {
  TemporaryFolder folder;
  return Build(profile::WriteXenHostChunk(folder.File("a.xenprof")), granularity);
}

std::string Folded(const Profile& profile) {
  StringOutput out;
  const absl::Status status = ExportFolded(profile, &out);
  EXPECT_TRUE(status.ok()) << status;
  return out.text();
}

uint64_t FoldedTotal(const std::string& text) {
  uint64_t sum = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    uint64_t count = 0;
    EXPECT_TRUE(absl::SimpleAtoi(line.substr(line.rfind(' ') + 1), &count)) << line;
    sum += count;
  }
  return sum;
}

std::string Inflate(const std::string& packed, int window_bits) {
  z_stream stream = {};
  EXPECT_EQ(inflateInit2(&stream, window_bits), Z_OK);
  std::string out(packed.size() * 50 + 100'000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = packed.size();
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = out.size();
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

pprof::Profile Pprof(const Profile& profile) {
  StringOutput out;
  const absl::Status status = ExportPprof(profile, {}, &out);
  EXPECT_TRUE(status.ok()) << status;
  pprof::Profile message;
  EXPECT_TRUE(message.ParseFromString(Inflate(out.text(), 15 + 16)));
  return message;
}

TEST(FoldedTest, OneLineFromProgramOverKernelToXen) {
  const std::string text = Folded(XenHost());
  EXPECT_THAT(text,
              HasSubstr("xl;main;xc_domain_getinfolist;do_syscall_64_[k];hypercall_page_[k];lstar_enter_[x];"
                        "do_domctl_[x] "));
  // Whose task was current says nothing of these.
  EXPECT_THAT(text, HasSubstr("\nguest1 (domain 1);[guest kernel]_[g] 100\n"));
  EXPECT_THAT(text, HasSubstr("[xen idle];default_idle_[x] 100\n"));
  EXPECT_THAT(text, HasSubstr("[guest];[xen]+0xffff82d040209999_[x] 100\n"));
  EXPECT_THAT(text, HasSubstr("[unattributed] 100\n"));
  EXPECT_EQ(FoldedTotal(text), profile::kXenHostSamples);
  EXPECT_EQ(text, Folded(XenHost()));  // equal chunks, equal bytes
}

// Folded stacks and the page show a task by its name: built that way they are the same, byte by byte.
TEST(FoldedTest, IsTheSameWithTasksByName) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t program = maker.Mapping(FrameKind::kDom0User, "/bin/p", true);
  maker.symbolizer.functions["/bin/p"] = {{0x1000, 0x100, "f"}, {0x2000, 0x100, "g"}};
  std::vector<uint32_t> tasks;
  for (uint32_t i = 0; i < 40; ++i) tasks.push_back(maker.Task(100 + i, 100 + i, i * 7 % 5 < 2 ? "sh" : "p"));
  for (uint64_t i = 0; i < 5000; ++i) {
    // Named functions and bare addresses, some stacks with many tasks.
    const uint64_t leaf = i % 3 == 0 ? 0x9000 + i % 50 : 0x1000 + i % 0x90;
    maker.Sample(i % 2, maker.start_ns + i,
                 maker.Stack({{program, leaf}, {program, 0x2010 + i % 7}}, Origin::kDom0User),
                 tasks[i * i % tasks.size()]);
  }
  const std::string path = maker.Write(folder.File("a.xenprof"));
  StringOutput page, page_by_name;
  const Profile by_thread = Build(path, Granularity::kFunction);
  const auto by_name = profile::BuildProfile(profile::Files({path}), {}, {.tasks_by_name = true});
  ASSERT_TRUE(by_name.ok()) << by_name.status();
  EXPECT_LT(by_name->samples.size(), by_thread.samples.size());
  EXPECT_EQ(Folded(*by_name), Folded(by_thread));
  EXPECT_EQ(FoldedTotal(Folded(*by_name)), 5000);
  ASSERT_TRUE(ExportHtml(by_thread, {}, &page).ok());
  ASSERT_TRUE(ExportHtml(*by_name, {}, &page_by_name).ok());
  EXPECT_EQ(page_by_name.text(), page.text());
}

// A stripped program: what is known of a function without a name is where it begins and ends.
TEST(FoldedTest, ShowsAFunctionWithoutNameAsOne) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t program = maker.Mapping(FrameKind::kDom0User, "/bin/stripped", true);
  maker.symbolizer.functions["/bin/stripped"] = {
      {0x1000, 0x100, "exported"}, {0x1100, 0x80, ""}, {0x2000, 0x40, ""}};
  for (const uint64_t leaf : {0x1010, 0x1100, 0x1104, 0x117f, 0x1180}) {
    maker.Sample(0, maker.start_ns + leaf,
                 maker.Stack({{program, leaf}, {program, 0x2011}}, Origin::kDom0User),
                 maker.Task(7, 7, "sh"));
  }
  // A call is the last instruction of its function.
  maker.Sample(0, maker.start_ns + 0x2040,
               maker.Stack({{program, 0x1010}, {program, 0x2040}}, Origin::kDom0User),
               maker.Task(7, 7, "sh"));
  const std::string path = maker.Write(folder.File("a.xenprof"));
  const Profile profile = Build(path, Granularity::kFunction);
  EXPECT_EQ(Folded(profile),
            "sh;stripped+0x2000;exported 2\n"
            "sh;stripped+0x2000;stripped+0x1100 3\n"
            "sh;stripped+0x2000;stripped+0x1180 1\n");
  for (const profile::Function& function : profile.functions) {
    EXPECT_EQ(function.named, profile.str(function.name) == "exported");
  }

  const pprof::Profile message = Pprof(Build(path, Granularity::kAddress));
  std::multimap<std::string, uint64_t> addresses;
  for (const pprof::Location& location : message.location()) {
    const auto& function = message.function(static_cast<int>(location.line(0).function_id()) - 1);
    addresses.emplace(message.string_table(static_cast<int>(function.name_string())), location.address());
  }
  EXPECT_EQ(addresses, (std::multimap<std::string, uint64_t>{{"exported", 0x1010},
                                                             {"stripped+0x1100", 0x1100},
                                                             {"stripped+0x1100", 0x1104},
                                                             {"stripped+0x1100", 0x117f},
                                                             {"stripped+0x1180", 0x1180},
                                                             {"stripped+0x2000", 0x2010},
                                                             {"stripped+0x2000", 0x203f}}));
}

TEST(FoldedTest, RefusesTheWrongGranularityAndNoticesMissingSamples) {
  StringOutput out;
  EXPECT_EQ(ExportFolded(XenHost(Granularity::kAddress), &out).code(), absl::StatusCode::kInvalidArgument);
  Profile profile = XenHost();
  profile.samples.pop_back();
  EXPECT_EQ(ExportFolded(profile, &out).code(), absl::StatusCode::kInternal);
}

TEST(TotalsTest, EveryExporterNoticesMissingSamples) {
  Profile by_function = XenHost(), by_address = XenHost(Granularity::kAddress);
  by_function.samples[0].count += 1;
  by_address.samples[0].count += 1;
  StringOutput out;
  EXPECT_EQ(ExportHtml(by_function, {}, &out).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ExportText(by_function, {}, &out).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ExportPprof(by_address, {}, &out).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(by_function.Check().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(out.text(), "");
}

// Names as nobody wants to meet them.
Profile Hostile(Granularity granularity) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t program = maker.Mapping(FrameKind::kDom0User, "/tmp/</script><b>\"evil\";\n.so", true);
  maker.symbolizer.functions["/tmp/</script><b>\"evil\";\n.so"] = {
      {0x1000, 0x100, "std::vector<a;b>::push</script><img src=x onerror=document.title='hacked'>"},
      {0x2000, 0x100, "line\nbreak\r\x1b[31mred"},
      {0x3000, 0x100, std::string("not utf-8 \xff\xfe \xed\xa0\x80 end")},
      {0x4000, 0x100, std::string(100'000, 'n')},
      {0x5000, 0x100, "{{data}}{{js}}{{css}}"},
  };
  const uint32_t task = maker.Task(1, 1, "ev;il\n</script>");
  for (int i = 1; i <= 5; ++i) {
    maker.Sample(0, maker.start_ns + i,
                 maker.Stack({{program, uint64_t(i) * 0x1000 + 4}, {program, 0x1010}}, Origin::kDom0User),
                 task);
  }
  maker.header.mutable_host()->set_hostname("</title><script>document.title='hacked'</script>");
  return Build(maker.Write(folder.File("a.xenprof")), granularity);
}

TEST(FoldedTest, EscapesHostileNames) {
  const std::string text = Folded(Hostile(Granularity::kFunction));
  EXPECT_EQ(FoldedTotal(text), 5);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 5);
  for (const std::string& line : lines) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ';'), 2) << line.substr(0, 200);
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
  }
  EXPECT_THAT(text, HasSubstr("ev:il?</script>;std::vector<a:b>::push"));
}

TEST(HtmlTest, CannotBeLeftByHostileNames) {
  const Profile profile = Hostile(Granularity::kFunction);
  StringOutput out;
  ASSERT_TRUE(ExportHtml(profile, {}, &out).ok());
  EXPECT_THAT(out.text(), HasSubstr("<title>&lt;/title&gt;&lt;script&gt;"));
  EXPECT_THAT(out.text(), Not(HasSubstr("onerror=document")));
  // The page's own: one style, two scripts, no other reference to the outside.
  size_t scripts = 0;
  for (size_t at = out.text().find("</script>"); at != std::string::npos;
       at = out.text().find("</script>", at + 1)) {
    ++scripts;
  }
  EXPECT_EQ(scripts, 2);
  for (const char* outside : {"http://", "https://", "src=", "@import", "url("}) {
    EXPECT_THAT(out.text(), Not(HasSubstr(outside)));
  }
}

TEST(PprofTest, KeepsSamplesTimeLabelsAndComments) {
  const Profile profile = XenHost(Granularity::kAddress);
  const pprof::Profile out = Pprof(profile);
  const auto text = [&](int64_t id) { return out.string_table(static_cast<int>(id)); };
  ASSERT_EQ(out.sample_type_size(), 2);
  EXPECT_EQ(text(out.sample_type(0).type_string()) + "/" + text(out.sample_type(0).unit_string()),
            "samples/count");
  EXPECT_EQ(text(out.sample_type(1).type_string()) + "/" + text(out.sample_type(1).unit_string()),
            "cpu/nanoseconds");
  EXPECT_EQ(out.string_table(0), "");
  EXPECT_EQ(out.period(), 10'000'000);
  EXPECT_EQ(out.time_nanos(), profile.start_ns);
  EXPECT_EQ(out.duration_nanos(), 10'000'000'000);
  EXPECT_EQ(text(out.mapping(0).filename_string()), "[kernel]");
  EXPECT_EQ(text(out.mapping(0).build_id_string()), "010203");

  std::map<std::string, int64_t> by_origin, by_domain, by_pid;
  int64_t count = 0, nanoseconds = 0;
  for (const pprof::Sample& sample : out.sample()) {
    count += sample.value(0);
    nanoseconds += sample.value(1);
    EXPECT_GT(sample.location_id_size(), 0);
    std::map<std::string, std::string> labels;
    for (const pprof::Label& label : sample.label()) {
      labels[text(label.key_string())] =
          label.str_string() != 0 ? text(label.str_string()) : std::to_string(label.num());
    }
    by_origin[labels["origin"]] += sample.value(0);
    if (labels.count("domain") > 0) by_domain[labels["domain"]] += sample.value(0);
    const std::string& origin = labels["origin"];
    const bool of_task = origin == "dom0_user" || origin == "dom0_kernel" || origin == "xen_for_dom0";
    EXPECT_EQ(labels.count("pid") > 0, of_task) << origin;
    EXPECT_EQ(labels.count("cpu"), 1);
  }
  EXPECT_EQ(count, profile::kXenHostSamples);
  EXPECT_EQ(nanoseconds, profile::kXenHostSamples * 10'000'000);
  EXPECT_EQ(by_origin["xen_for_guest"], 200);
  EXPECT_EQ(by_origin["unknown"], 100);
  EXPECT_EQ(by_domain["guest1 (domain 1)"], 300);

  std::string comments;
  for (const int64_t comment : out.comment_string()) comments += text(comment) + "\n";
  EXPECT_THAT(comments, HasSubstr("mode: xen stacks: callers seen\n"));
  EXPECT_THAT(comments, HasSubstr("coverage: complete: nothing lost on 2 CPUs\n"));
}

TEST(PprofTest, EveryFrameHasAFunctionAndEveryIdExists) {
  for (const Profile& profile : {XenHost(Granularity::kAddress), Hostile(Granularity::kAddress)}) {
    const pprof::Profile out = Pprof(profile);
    for (const pprof::Location& location : out.location()) {
      ASSERT_GT(location.line_size(), 0);
      for (const pprof::Line& line : location.line()) {
        ASSERT_GE(line.function_id(), 1);
        ASSERT_LE(line.function_id(), static_cast<uint64_t>(out.function_size()));
        const pprof::Function& function = out.function(static_cast<int>(line.function_id()) - 1);
        EXPECT_EQ(function.id(), line.function_id());
        EXPECT_NE(out.string_table(static_cast<int>(function.name_string())), "");
      }
      EXPECT_LE(location.mapping_id(), static_cast<uint64_t>(out.mapping_size()));
    }
    for (const pprof::Mapping& mapping : out.mapping())
      EXPECT_LT(mapping.memory_start(), mapping.memory_limit());
    for (const pprof::Sample& sample : out.sample()) {
      for (const uint64_t id : sample.location_id()) {
        ASSERT_GE(id, 1);
        ASSERT_LE(id, static_cast<uint64_t>(out.location_size()));
      }
    }
  }
}

TEST(FunctionTotalsTest, ARecursiveFunctionCountsOnceASample) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t program = maker.Mapping(FrameKind::kDom0User, "/bin/p", true);
  maker.symbolizer.functions["/bin/p"] = {{0x1000, 0x100, "again"}, {0x2000, 0x100, "once"}};
  const uint32_t stack = maker.Stack(
      {{program, 0x1010}, {program, 0x1020}, {program, 0x2010}, {program, 0x1030}}, Origin::kDom0User);
  const uint32_t other = maker.Stack({{program, 0x2010}, {program, 0x1030}}, Origin::kDom0User);
  for (uint64_t i = 0; i < 10; ++i) maker.Sample(0, maker.start_ns + i, i < 7 ? stack : other, 0);
  const Profile profile = Build(maker.Write(folder.File("a.xenprof")), Granularity::kFunction);
  const FunctionTotals totals = SumFunctions(profile);
  ASSERT_EQ(totals.functions.size(), 2);
  EXPECT_EQ(profile.str(profile.functions[totals.functions[0].function].name), "again");
  EXPECT_EQ(totals.functions[0].self, 7);
  EXPECT_EQ(totals.functions[0].total, 10);
  EXPECT_EQ(totals.functions[1].self, 3);
  EXPECT_EQ(totals.functions[1].total, 10);
}

TEST(TextTest, TellsOriginsFunctionsModeAndLoss) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t kernel = maker.Mapping(FrameKind::kDom0Kernel, "[kernel]", false);
  maker.symbolizer.problems["[kernel]"] = "kptr_restrict hides the addresses";
  const uint32_t stack = maker.Stack({{kernel, 0xffffffff81000000}}, Origin::kDom0Kernel);
  for (uint64_t i = 0; i < 50; ++i) maker.Sample(0, maker.start_ns + i, stack, 0);
  maker.header.mutable_mode()->set_kind(proto::Mode::DOM0_ONLY);
  maker.AddIncident({merge::Incident::Kind::kLost, 3, maker.start_ns, maker.start_ns, 1234, ""});
  const Profile profile = Build(maker.Write(folder.File("a.xenprof")), Granularity::kFunction);
  StringOutput out;
  ASSERT_TRUE(ExportText(profile, {}, &out).ok());
  EXPECT_THAT(out.text(), HasSubstr("mode       dom0 only: callers seen\n"));
  EXPECT_THAT(out.text(), HasSubstr("unseen     A software clock sees only dom0"));
  EXPECT_THAT(out.text(), HasSubstr("coverage   incomplete: 1,234 records lost\n"));
  EXPECT_THAT(out.text(), HasSubstr("CPU 3: 1,234 lost, 0 samples seen\n"));
  EXPECT_THAT(out.text(), HasSubstr("   100.00 %           50  dom0_kernel\n"));
  EXPECT_THAT(out.text(), HasSubstr("[kernel]+0xffffffff81000000\n"));
  EXPECT_THAT(out.text(), HasSubstr("50  [kernel]: kptr_restrict hides the addresses\n"));
}

TEST(TextTest, ShowsLines) {
  TemporaryFolder folder;
  ChunkMaker maker;
  const uint32_t xen = maker.Mapping(FrameKind::kHypervisor, "[xen]", false);
  maker.symbolizer.functions["[xen]"] = {{0x1000, 0x100, "outer"}};
  maker.symbolizer.lines["[xen]"] = {{0x1010, {{"inlined", "common/a.h", 12}, {"outer", "common/a.c", 34}}}};
  maker.Sample(0, maker.start_ns, maker.Stack({{xen, 0x1010}}, Origin::kXenForDom0), 0);
  const Profile profile = Build(maker.Write(folder.File("a.xenprof")), Granularity::kAddress);
  StringOutput out;
  ASSERT_TRUE(ExportText(profile, {.lines = 10}, &out).ok());
  EXPECT_THAT(out.text(), HasSubstr("inlined  common/a.h:12\n"));
  EXPECT_EQ(ExportText(XenHost(), {.lines = 10}, &out).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReportJsonTest, CarriesTheSameNumbers) {
  StringOutput out;
  ASSERT_TRUE(ExportReportJson(XenHost(), 0, &out).ok());
  EXPECT_THAT(out.text(), HasSubstr("\"samples\": 1000,"));
  EXPECT_THAT(out.text(), HasSubstr("\"xen_for_guest\": 200,"));
  EXPECT_THAT(out.text(), HasSubstr("\"mode\": \"xen stacks\","));
  EXPECT_THAT(out.text(), HasSubstr("\"complete\": true,"));
}

TEST(FlameTreeTest, IsInPreorderByWeight) {
  const Profile profile = XenHost();
  const FlameTree tree = BuildFlameTree(profile);
  ASSERT_EQ(tree.first_self.size(), tree.size() + 1);
  EXPECT_EQ(tree.depth[0], 0);
  uint64_t sum = 0;
  for (const FlameSelf& self : tree.selfs) sum += self.count;
  EXPECT_EQ(sum, profile::kXenHostSamples);
  std::vector<std::string> roots;
  for (size_t i = 1; i < tree.size(); ++i) {
    EXPECT_LE(tree.depth[i], tree.depth[i - 1] + 1);
    if (tree.depth[i] == 1) roots.emplace_back(tree.labels[tree.label[i]].name);
  }
  // xl has two thirds of what is dom0's, the guest 300.
  ASSERT_FALSE(roots.empty());
  EXPECT_EQ(roots.front(), "guest1 (domain 1)");
  EXPECT_THAT(roots, testing::UnorderedElementsAre("guest1 (domain 1)", "xl", "sh", "[guest]", "[xen idle]",
                                                   "[unattributed]"));
}

TEST(FlameTreeTest, SortsManySiblingsByTotalThenByName) {
  Profile profile;
  profile.strings.Add("");
  profile.hosts.emplace_back();
  profile.tasks.emplace_back();
  profile.domains.emplace_back();
  profile.nodes.emplace_back();
  // Names of any length that begin alike, one the beginning of another, equal ones told apart by their
  // module.
  std::vector<std::tuple<int64_t, std::string, std::string>> expected;
  for (uint32_t i = 0; i < 600; ++i) {
    const std::string name = std::string(i * 7 % 90, 'a') + (i % 3 == 0   ? ""
                                                             : i % 3 == 1 ? "\xff"
                                                                          : std::string(1, '\0'));
    const std::string module = i % 2 == 0 ? "m" : "n";
    const uint64_t count = 1 + i % 2;
    profile.functions.push_back({.name = profile.strings.Add(name), .module = profile.strings.Add(module)});
    profile.lines.push_back({.function = i});
    profile.frames.push_back({.first_line = i});
    profile.nodes.push_back({0, i});
    profile.samples.push_back({.node = i + 1, .count = count});
    profile.totals.samples += count;
    expected.emplace_back(-static_cast<int64_t>(count), name, module);
  }
  std::sort(expected.begin(), expected.end());
  const FlameTree tree = BuildFlameTree(profile);
  ASSERT_EQ(tree.size(), expected.size() + 2);  // all, and whose time it was
  for (size_t i = 0; i < expected.size(); ++i) {
    const FlameLabel& label = tree.labels[tree.label[i + 2]];
    EXPECT_EQ(label.name, std::get<1>(expected[i])) << i;
    EXPECT_EQ(label.module, std::get<2>(expected[i])) << i;
  }
}

TEST(DeflateTest, PacksAnySize) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{70'000}, size_t{3'000'000}}) {
    std::string bytes(size, '\0');
    uint32_t state = 1;
    for (char& c : bytes) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    const auto packed = Deflate(bytes, DeflateFormat::kZlib, 1);
    ASSERT_TRUE(packed.ok()) << packed.status();
    EXPECT_EQ(Inflate(*packed, 15), bytes);
  }
}

TEST(SummaryTest, FormatsForPeople) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(1'234'567), "1,234,567");
  EXPECT_EQ(DurationText(500), "0 us");
  EXPECT_EQ(DurationText(12'000'000), "12 ms");
  EXPECT_EQ(DurationText(30'000'000'000), "30.00 s");
  EXPECT_EQ(DurationText(3'725'000'000'000), "62 min 5 s");
  EXPECT_EQ(ShareText(1, 8), "12.50 %");
  EXPECT_EQ(ShareText(1, 0), "-");
  EXPECT_EQ(Printable("a\x1b[31mb\n"), "a?[31mb?");
  EXPECT_EQ(TimeText(1'700'000'000'250'000'000), "2023-11-14 22:13:20.250 UTC");
}

}  // namespace
}  // namespace xenprof::exporter
