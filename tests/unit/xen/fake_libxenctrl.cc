#include "fake_libxenctrl.h"

extern "C" {
#include <xenctrl.h>
#include <xenstore.h>
#ifdef HAVE_XENHYPFS
#include <xenhypfs.h>
#endif
}

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

using xenprof::xen::fake_libxenctrl;

namespace xenprof::xen {
FakeLibxenctrl fake_libxenctrl;
}

namespace {

bool Fails(const char* function) {
  const auto found = fake_libxenctrl.errors.find(function);
  if (found == fake_libxenctrl.errors.end()) return false;
  errno = found->second;
  return true;
}

int dummy;

}  // namespace

extern "C" {

xc_interface* xc_interface_open(xentoollog_logger*, xentoollog_logger*, unsigned) {
  if (fake_libxenctrl.open_error != 0) {
    errno = fake_libxenctrl.open_error;
    return nullptr;
  }
  ++fake_libxenctrl.open_handles;
  return reinterpret_cast<xc_interface*>(&dummy);
}

int xc_interface_close(xc_interface*) {
  --fake_libxenctrl.open_handles;
  return 0;
}

int xc_version(xc_interface*, int command, void* arg) {
  if (Fails("xc_version")) return -1;
  const auto fill = [arg](size_t bytes, const std::string& text) {
    // As Xen does: the whole array, not necessarily with a zero at its end.
    memset(arg, 0, bytes);
    memcpy(arg, text.data(), std::min(bytes, text.size()));
    return 0;
  };
  switch (command) {
    case XENVER_version:
      return 4 << 16 | 17;
    case XENVER_extraversion:
      return fill(sizeof(xen_extraversion_t), fake_libxenctrl.extra);
    case XENVER_changeset:
      return fill(sizeof(xen_changeset_info_t), "git:abc");
    case XENVER_commandline:
      return fill(sizeof(xen_commandline_t), fake_libxenctrl.command_line);
    case XENVER_capabilities:
      return fill(sizeof(xen_capabilities_info_t), "xen-3.0-x86_64");
    case XENVER_compile_info:
      return fill(sizeof(static_cast<xen_compile_info_t*>(arg)->compiler), std::string(100, 'c'));
    case XENVER_build_id: {
      auto* id = static_cast<xen_build_id_t*>(arg);
      const std::string& text = fake_libxenctrl.build_id;
      if (id->len < text.size()) {
        errno = ENOBUFS;
        return -1;
      }
      memcpy(id->buf, text.data(), text.size());
      return static_cast<int>(text.size());
    }
    default:
      errno = ENOSYS;
      return -1;
  }
}

int xc_cputopoinfo(xc_interface*, unsigned* count, xc_cputopo_t* entries) {
  if (Fails("xc_cputopoinfo")) return -1;
  if (entries != nullptr) {
    for (unsigned i = 0; i < std::min(*count, fake_libxenctrl.cpus); ++i) {
      const bool off = std::count(fake_libxenctrl.offline.begin(), fake_libxenctrl.offline.end(), i) != 0;
      entries[i] = {off ? ~0u : i, 0, 0};
    }
  }
  *count = fake_libxenctrl.cpus;
  return 0;
}

int xc_physinfo(xc_interface*, xc_physinfo_t* info) {
  if (Fails("xc_physinfo")) return -1;
  memset(info, 0, sizeof(*info));
  info->nr_cpus = fake_libxenctrl.cpus;
  info->max_cpu_id = fake_libxenctrl.cpus - 1;
  info->total_pages = 1024;
  return 0;
}

int xc_domain_getinfolist(xc_interface*, uint32_t first, unsigned max, xc_domaininfo_t* info) {
  if (Fails("xc_domain_getinfolist")) return -1;
  int got = 0;
  // Domain ids 0, 2, 4, ...
  for (int i = 0; i < fake_libxenctrl.domains && got < static_cast<int>(max); ++i) {
    const auto domid = static_cast<domid_t>(2 * i);
    if (domid < first) continue;
    memset(&info[got], 0, sizeof(info[got]));
    info[got].domain = domid;
    info[got].handle[0] = static_cast<uint8_t>(i);
    info[got].max_vcpu_id = fake_libxenctrl.dom0_vcpus - 1;
    info[got].nr_online_vcpus = fake_libxenctrl.dom0_vcpus;
    info[got].flags = i == 0 ? XEN_DOMINF_running : i == 1 ? XEN_DOMINF_dying : XEN_DOMINF_hvm_guest;
    ++got;
  }
  return got;
}

int xc_get_max_cpus(xc_interface*) {
  if (Fails("xc_get_max_cpus")) return -1;
  return static_cast<int>(fake_libxenctrl.cpus);
}
xc_cpumap_t xc_cpumap_alloc(xc_interface*) {
  return static_cast<xc_cpumap_t>(calloc(1, (fake_libxenctrl.cpus + 7) / 8));
}
int xc_cpumap_testcpu(int cpu, xc_cpumap_t map) { return map[cpu / 8] >> (cpu % 8) & 1; }

int xc_vcpu_getaffinity(xc_interface*, uint32_t, int vcpu, xc_cpumap_t hard, xc_cpumap_t, uint32_t flags) {
  if (Fails("xc_vcpu_getaffinity")) return -1;
  if ((flags & XEN_VCPUAFFINITY_HARD) == 0) return 0;
  memset(hard, 0, (fake_libxenctrl.cpus + 7) / 8);
  hard[vcpu / 8] = static_cast<uint8_t>(1 << (vcpu % 8));
  return 0;
}

int xc_readconsolering(xc_interface*, char* buffer, unsigned* count, int clear, int incremental,
                       uint32_t* index) {
  if (Fails("xc_readconsolering")) return -1;
  if (clear != 0) abort();  // the log belongs to the administrator
  const std::string& log = fake_libxenctrl.console;
  const size_t from = incremental != 0 ? std::min<size_t>(*index, log.size()) : 0;
  *count = static_cast<unsigned>(std::min<size_t>(*count, log.size() - from));
  memcpy(buffer, log.data() + from, *count);
  *index = static_cast<uint32_t>(from + *count);
  return 0;
}

#ifdef HAVE_XC_LIVEPATCH_LIST_GET_SIZES
int xc_livepatch_list_get_sizes(xc_interface*, unsigned* count, uint32_t* names, uint32_t* metadata) {
  if (Fails("xc_livepatch_list_get_sizes")) return -1;
  *count = 2;
  *names = 7;
  *metadata = 0;
  return 0;
}

int xc_livepatch_list(xc_interface*, const unsigned, const unsigned, xen_livepatch_status* states,
                      char* names, uint32_t* lengths, const uint32_t, char*, uint32_t*, const uint32_t,
                      unsigned* done, unsigned* left) {
  if (Fails("xc_livepatch_list")) return -1;
  memcpy(names, "lp1\0lp2", 7);
  lengths[0] = 4;
  lengths[1] = 3;
  states[0].state = LIVEPATCH_STATE_APPLIED;
  states[1].state = LIVEPATCH_STATE_CHECKED;
  *done = 2;
  *left = 0;
  return 0;
}
#endif

#ifdef HAVE_XENHYPFS
xenhypfs_handle* xenhypfs_open(xentoollog_logger*, unsigned) {
  if (Fails("xenhypfs_open")) return nullptr;
  return reinterpret_cast<xenhypfs_handle*>(&dummy);
}
int xenhypfs_close(xenhypfs_handle*) { return 0; }
char* xenhypfs_read(xenhypfs_handle*, const char* path) {
  if (Fails("xenhypfs_read")) return nullptr;
  return strdup(strcmp(path, "/buildinfo/config") == 0 ? "CONFIG_FRAME_POINTER=y\n" : "");
}
#endif

// No xenstored listens here: these are not reached.
xs_handle* xs_open(unsigned long) { return nullptr; }
void xs_close(xs_handle*) {}
void* xs_read(xs_handle*, xs_transaction_t, const char*, unsigned*) { return nullptr; }
bool xs_watch(xs_handle*, const char*, const char*) { return false; }
int xs_fileno(xs_handle*) { return -1; }
char** xs_check_watch(xs_handle*) { return nullptr; }

}  // extern "C"
