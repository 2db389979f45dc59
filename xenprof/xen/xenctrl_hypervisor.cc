#include "xenprof/xen/xenctrl_hypervisor.h"

extern "C" {
#include <xentoollog.h>
#ifdef HAVE_XENHYPFS
#include <xenhypfs.h>
#endif
}
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "xenprof/xen/hypervisor_error.h"

namespace xenprof::xen {
namespace {

constexpr uint32_t kMaxDomains = 32768;       // DOMID_FIRST_RESERVED is 0x7ff0
constexpr uint32_t kMaxCpus = 1 << 16;        // far above any NR_CPUS
constexpr size_t kMaxConsoleBytes = 1 << 24;  // conring_size= is seldom above 1 MiB

absl::Status Error(XenCallKind kind, absl::string_view call) { return XenCallError(kind, call, errno); }

struct FreeDeleter {
  void operator()(void* memory) const { free(memory); }
};
template <typename T>
using Malloced = std::unique_ptr<T, FreeDeleter>;

// Text in a fixed array that need not end in zero.
template <size_t N>
std::string FromArray(const char (&array)[N]) {
  return std::string(array, strnlen(array, N));
}

// Whether xenstored takes connections. libxenstore falls back to /dev/xen/xenbus, where a request without a
// xenstored waits for ever.
bool XenstoredListens() {
  for (const char* path : {"/run/xenstored/socket", "/var/run/xenstored/socket"}) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    const int result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    close(fd);
    if (result == 0) return true;
  }
  return false;
}

}  // namespace

struct XenctrlHypervisor::Logger {
  xentoollog_logger vtable = {
      [](xentoollog_logger*, xentoollog_level, int, const char*, const char*, va_list) {}, nullptr,
      [](xentoollog_logger*) {}};
};

XenctrlHypervisor::XenctrlHypervisor() : logger_(std::make_unique<Logger>()) {}

XenctrlHypervisor::~XenctrlHypervisor() {
  if (xenstore_ != nullptr) xs_close(xenstore_);
  if (xc_ != nullptr) xc_interface_close(xc_);
}

absl::StatusOr<std::unique_ptr<XenctrlHypervisor>> XenctrlHypervisor::Open() {
  std::unique_ptr<XenctrlHypervisor> hypervisor(new XenctrlHypervisor());
  hypervisor->xc_ = xc_interface_open(&hypervisor->logger_->vtable, &hypervisor->logger_->vtable, 0);
  if (hypervisor->xc_ == nullptr) return Error(XenCallKind::kOpen, "xc_interface_open");
  return hypervisor;
}

// -- version
// ----------------------------------------------------------------------------------------------------------

absl::StatusOr<std::string> XenctrlHypervisor::Version() {
  const int version = xc_version(xc_, XENVER_version, nullptr);
  if (version < 0) return Error(XenCallKind::kVersion, "xc_version(version)");
  std::string extra;
#ifdef HAVE_XC_XENVER
  if (Malloced<char> text(xc_xenver_extraversion(xc_)); text != nullptr) extra = text.get();
#endif
  if (extra.empty()) {
    xen_extraversion_t buffer = {};
    if (xc_version(xc_, XENVER_extraversion, &buffer) < 0) {
      return Error(XenCallKind::kVersion, "xc_version(extraversion)");
    }
    extra = FromArray(buffer);
  }
  return absl::StrCat(version >> 16, ".", version & 0xffff, extra);
}

absl::StatusOr<std::string> XenctrlHypervisor::Changeset() {
#ifdef HAVE_XC_XENVER
  if (Malloced<char> text(xc_xenver_changeset(xc_)); text != nullptr) return std::string(text.get());
#endif
  xen_changeset_info_t buffer = {};
  if (xc_version(xc_, XENVER_changeset, &buffer) < 0)
    return Error(XenCallKind::kVersion, "xc_version(changeset)");
  return FromArray(buffer);
}

absl::StatusOr<std::string> XenctrlHypervisor::BuildId() {
#ifdef HAVE_XC_XENVER
  if (Malloced<char> text(xc_xenver_buildid(xc_)); text != nullptr) return absl::HexStringToBytes(text.get());
#endif
  constexpr uint32_t kMaxBytes = 1024;
  Malloced<xen_build_id_t> id(static_cast<xen_build_id_t*>(calloc(1, sizeof(xen_build_id_t) + kMaxBytes)));
  if (id == nullptr) return absl::ResourceExhaustedError("no memory for a build id");
  id->len = kMaxBytes;
  const int length = xc_version(xc_, XENVER_build_id, id.get());
  if (length < 0) {
    if (errno == ENODATA) return absl::NotFoundError("this Xen was linked without a build id");
    return Error(XenCallKind::kVersion, "xc_version(build_id)");
  }
  // libxenctrl before 4.9 returned 0 for success
  const uint32_t bytes = length > 0 ? static_cast<uint32_t>(length) : id->len;
  if (bytes > kMaxBytes) return absl::InternalError("Xen's build id is longer than it was asked for");
  return std::string(reinterpret_cast<const char*>(id->buf), bytes);
}

absl::StatusOr<std::string> XenctrlHypervisor::CommandLine() {
#ifdef HAVE_XC_XENVER
  if (Malloced<char> text(xc_xenver_commandline(xc_)); text != nullptr) return std::string(text.get());
#endif
  auto buffer = std::make_unique<xen_commandline_t[]>(1);
  if (xc_version(xc_, XENVER_commandline, &buffer[0]) < 0) {
    return Error(XenCallKind::kVersion, "xc_version(commandline)");
  }
  return FromArray(buffer[0]);
}

absl::StatusOr<std::string> XenctrlHypervisor::Capabilities() {
#ifdef HAVE_XC_XENVER
  if (Malloced<char> text(xc_xenver_capabilities(xc_)); text != nullptr) return std::string(text.get());
#endif
  auto buffer = std::make_unique<xen_capabilities_info_t[]>(1);
  if (xc_version(xc_, XENVER_capabilities, &buffer[0]) < 0) {
    return Error(XenCallKind::kVersion, "xc_version(capabilities)");
  }
  return FromArray(buffer[0]);
}

absl::StatusOr<std::string> XenctrlHypervisor::Compiler() {
  xen_compile_info_t info = {};
  if (xc_version(xc_, XENVER_compile_info, &info) < 0)
    return Error(XenCallKind::kVersion, "xc_version(compile_info)");
  return FromArray(info.compiler);
}

// -- host
// -------------------------------------------------------------------------------------------------------------

absl::StatusOr<std::vector<CpuTopology>> XenctrlHypervisor::Topology() {
  unsigned count = 0;
  if (xc_cputopoinfo(xc_, &count, nullptr) != 0) return Error(XenCallKind::kControl, "xc_cputopoinfo");
  if (count > kMaxCpus) return absl::InternalError(absl::StrCat("Xen claims ", count, " CPUs"));
  std::vector<xc_cputopo_t> entries(count);
  if (xc_cputopoinfo(xc_, &count, entries.data()) != 0) return Error(XenCallKind::kControl, "xc_cputopoinfo");
  std::vector<CpuTopology> topology;
  for (uint32_t cpu = 0; cpu < std::min<size_t>(count, entries.size()); ++cpu) {
    // XEN_INVALID_CORE_ID: the CPU is offline or not there
    if (entries[cpu].core == ~0u) continue;
    topology.push_back({cpu, entries[cpu].core, entries[cpu].socket, entries[cpu].node});
  }
  return topology;
}

absl::StatusOr<PhysicalInfo> XenctrlHypervisor::Physical() {
  xc_physinfo_t info = {};
  if (xc_physinfo(xc_, &info) != 0) return Error(XenCallKind::kControl, "xc_physinfo");
  constexpr uint64_t kPageBytes = 4096;
  PhysicalInfo physical;
  physical.max_cpu_id = info.max_cpu_id;
  physical.online_cpus = info.nr_cpus;
  physical.nodes = info.nr_nodes;
  physical.cpu_khz = info.cpu_khz;
  physical.total_bytes = info.total_pages * kPageBytes;
  physical.free_bytes = info.free_pages * kPageBytes;
  return physical;
}

absl::StatusOr<std::vector<DomainInfo>> XenctrlHypervisor::Domains() {
  constexpr unsigned kBatch = 256;
  std::vector<DomainInfo> domains;
  std::vector<xc_domaininfo_t> batch(kBatch);
  uint32_t next = 0;
  while (domains.size() < kMaxDomains) {
    const int got = xc_domain_getinfolist(xc_, next, kBatch, batch.data());
    if (got < 0) return Error(XenCallKind::kControl, "xc_domain_getinfolist");
    for (int i = 0; i < got; ++i) {
      const xc_domaininfo_t& info = batch[i];
      DomainInfo domain;
      domain.domid = info.domain;
      static_assert(sizeof(info.handle) == sizeof(domain.uuid));
      memcpy(domain.uuid.data(), info.handle, sizeof(info.handle));
      domain.vcpus = info.nr_online_vcpus;
      domain.max_vcpu_id = info.max_vcpu_id;
      domain.running = (info.flags & XEN_DOMINF_running) != 0;
      domain.paused = (info.flags & XEN_DOMINF_paused) != 0;
      domain.dying = (info.flags & (XEN_DOMINF_dying | XEN_DOMINF_shutdown)) != 0;
      domain.hvm = (info.flags & XEN_DOMINF_hvm_guest) != 0;
      domain.cpu_time_ns = info.cpu_time;
      domain.name = DomainName(domain.domid);
      domains.push_back(std::move(domain));
    }
    if (got < static_cast<int>(kBatch)) break;
    next = domains.back().domid + 1;
  }
  return domains;
}

absl::StatusOr<std::vector<std::vector<uint32_t>>> XenctrlHypervisor::HardAffinity(uint32_t domid) {
  xc_domaininfo_t info = {};
  const int got = xc_domain_getinfolist(xc_, domid, 1, &info);
  if (got < 0) return Error(XenCallKind::kControl, "xc_domain_getinfolist");
  if (got == 0 || info.domain != domid)
    return absl::NotFoundError(absl::StrCat("there is no domain ", domid));
  const int max_cpus = xc_get_max_cpus(xc_);
  if (max_cpus <= 0) return Error(XenCallKind::kControl, "xc_get_max_cpus");
  Malloced<uint8_t> map(xc_cpumap_alloc(xc_));
  if (map == nullptr) return absl::ResourceExhaustedError("no memory for a CPU map");
  std::vector<std::vector<uint32_t>> affinity(info.max_vcpu_id + 1);
  for (uint32_t vcpu = 0; vcpu <= info.max_vcpu_id; ++vcpu) {
    if (xc_vcpu_getaffinity(xc_, domid, static_cast<int>(vcpu), map.get(), nullptr, XEN_VCPUAFFINITY_HARD) !=
        0) {
      if (errno == ESRCH) continue;  // a vCPU that was never made
      return Error(XenCallKind::kControl, "xc_vcpu_getaffinity");
    }
    for (int cpu = 0; cpu < max_cpus; ++cpu) {
      if (xc_cpumap_testcpu(cpu, map.get()) != 0) affinity[vcpu].push_back(static_cast<uint32_t>(cpu));
    }
  }
  return affinity;
}

absl::StatusOr<std::vector<Livepatch>> XenctrlHypervisor::Livepatches() {
  constexpr size_t kNameBytes = XEN_LIVEPATCH_NAME_SIZE;
  std::vector<Livepatch> patches;
  const auto add = [&](const char* name, size_t length, uint32_t state) {
    patches.push_back(
        {std::string(name, strnlen(name, length)), state == LIVEPATCH_STATE_APPLIED ? "applied" : "checked"});
  };
#ifdef HAVE_XC_LIVEPATCH_LIST_GET_SIZES
  unsigned count = 0;
  uint32_t name_bytes = 0, metadata_bytes = 0;
  if (int rc = xc_livepatch_list_get_sizes(xc_, &count, &name_bytes, &metadata_bytes); rc != 0) {
    return Error(XenCallKind::kControl, "xc_livepatch_list_get_sizes");
  }
  if (count == 0) return patches;
  if (count > 4096) return absl::InternalError(absl::StrCat("Xen claims ", count, " live patches"));
  std::vector<xen_livepatch_status_t> states(count);
  std::vector<char> names(std::max<size_t>(name_bytes, count * kNameBytes)), metadata(metadata_bytes + 1);
  std::vector<uint32_t> lengths(count), metadata_lengths(count);
  unsigned done = 0, left = 0;
  if (xc_livepatch_list(xc_, count, 0, states.data(), names.data(), lengths.data(), name_bytes,
                        metadata.data(), metadata_lengths.data(), metadata_bytes, &done, &left) != 0) {
    return Error(XenCallKind::kControl, "xc_livepatch_list");
  }
  size_t at = 0;
  for (unsigned i = 0; i < std::min(done, count); ++i) {
    if (at + lengths[i] > names.size()) break;
    add(&names[at], lengths[i], states[i].state);
    at += lengths[i];
  }
#else
  constexpr unsigned kMax = 64;
  std::vector<xen_livepatch_status_t> states(kMax);
  std::vector<char> names(kMax * kNameBytes);
  std::vector<uint32_t> lengths(kMax);
  unsigned done = 0, left = 0;
  if (xc_livepatch_list(xc_, kMax, 0, states.data(), names.data(), lengths.data(), &done, &left) != 0) {
    return Error(XenCallKind::kControl, "xc_livepatch_list");
  }
  for (unsigned i = 0; i < std::min(done, kMax); ++i) {
    add(&names[i * kNameBytes], std::min<size_t>(lengths[i], kNameBytes), states[i].state);
  }
#endif
  return patches;
}

absl::StatusOr<std::string> XenctrlHypervisor::ConsoleRing() {
  std::string log;
  uint32_t index = 0;
  std::vector<char> buffer(1 << 16);
  // Incremental reads: the ring's size is not told, each call gives what follows `index`.
  while (log.size() < kMaxConsoleBytes) {
    unsigned length = static_cast<unsigned>(buffer.size());
    if (xc_readconsolering(xc_, buffer.data(), &length, /*clear=*/0, /*incremental=*/1, &index) != 0) {
      return Error(XenCallKind::kControl, "xc_readconsolering");
    }
    if (length == 0) break;
    log.append(buffer.data(), std::min<size_t>(length, buffer.size()));
  }
  return log;
}

absl::StatusOr<std::string> XenctrlHypervisor::BuildConfig() {
#ifdef HAVE_XENHYPFS
  xenhypfs_handle* handle = xenhypfs_open(&logger_->vtable, 0);
  if (handle == nullptr) return Error(XenCallKind::kOther, "xenhypfs_open");
  Malloced<char> text(xenhypfs_read(handle, "/buildinfo/config"));
  const int error = errno;
  xenhypfs_close(handle);
  if (text == nullptr) return XenCallError(XenCallKind::kOther, "xenhypfs_read(/buildinfo/config)", error);
  return std::string(text.get());
#else
  return absl::UnimplementedError("built without libxenhypfs");
#endif
}

// -- xenstore
// ---------------------------------------------------------------------------------------------------------

absl::Status XenctrlHypervisor::ConnectXenstore() {
  if (xenstore_ != nullptr) return absl::OkStatus();
  if (!XenstoredListens())
    return absl::UnavailableError("xenstored does not listen on /run/xenstored/socket");
  xenstore_ = xs_open(0);
  if (xenstore_ == nullptr) return absl::UnavailableError(absl::StrCat("xs_open: ", strerror(errno)));
  return absl::OkStatus();
}

std::string XenctrlHypervisor::DomainName(uint32_t domid) {
  if (!ConnectXenstore().ok()) return "";
  unsigned length = 0;
  Malloced<char> name(static_cast<char*>(
      xs_read(xenstore_, XBT_NULL, absl::StrCat("/local/domain/", domid, "/name").c_str(), &length)));
  return name == nullptr ? std::string() : std::string(name.get(), strnlen(name.get(), length));
}

absl::StatusOr<int> XenctrlHypervisor::DomainWatchFd() {
  if (absl::Status connected = ConnectXenstore(); !connected.ok()) return connected;
  if (!watching_) {
    for (const char* path : {"@introduceDomain", "@releaseDomain"}) {
      if (!xs_watch(xenstore_, path, "xenprof")) {
        return absl::UnavailableError(absl::StrCat("xs_watch(", path, "): ", strerror(errno)));
      }
    }
    watching_ = true;
  }
  return xs_fileno(xenstore_);
}

absl::StatusOr<bool> XenctrlHypervisor::TakeDomainEvents() {
  if (xenstore_ == nullptr || !watching_) return absl::UnavailableError("domains are not watched");
  bool any = false;
  // xs_check_watch gives null both for "none now" (EAGAIN) and for a lost connection.
  while (char** event = xs_check_watch(xenstore_)) {
    free(event);
    any = true;
  }
  if (errno != EAGAIN && errno != 0) {
    const int error = errno;
    xs_close(xenstore_);
    xenstore_ = nullptr;
    watching_ = false;
    return absl::UnavailableError(absl::StrCat("the connection to xenstored is gone: ", strerror(error)));
  }
  return any;
}

}  // namespace xenprof::xen

extern "C" __attribute__((visibility("default"))) xenprof::xen::Hypervisor* xenprof_open_xenctrl(
    uint32_t abi, absl::Status* status) {
  if (abi != xenprof::xen::kHypervisorModuleAbi) {
    *status = absl::FailedPreconditionError(
        absl::StrCat("xenprof-xenctrl.so is of another version of xenprof (module ",
                     xenprof::xen::kHypervisorModuleAbi, ", program ", abi, ")"));
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<xenprof::xen::XenctrlHypervisor>> opened =
      xenprof::xen::XenctrlHypervisor::Open();
  if (!opened.ok()) {
    *status = opened.status();
    return nullptr;
  }
  return opened->release();
}
