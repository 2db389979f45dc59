#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "xenprof/xen/hypervisor.h"

// Set by the build: where the module is installed.
#ifndef XENPROF_MODULE_DIR
#define XENPROF_MODULE_DIR "/usr/lib/xenprof"
#endif

namespace xenprof::xen {
namespace {

std::string ProgramDirectory() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0 || static_cast<size_t>(length) == sizeof(path)) return "";
  const std::string text(path, static_cast<size_t>(length));
  return text.substr(0, text.rfind('/'));
}

absl::Status ExplainLoad(const std::string& path, absl::string_view error) {
  if (absl::StrContains(error, "libxen")) {
    return absl::UnavailableError(
        absl::StrCat("the Xen libraries that ", path, " was built with are not installed (", error, ")"));
  }
  return absl::UnavailableError(absl::StrCat("cannot load ", path, " (", error, ")"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Hypervisor>> OpenHypervisor(const OpenOptions& options) {
  const char* from_environment = secure_getenv("XENPROF_MODULE_DIR");
  const std::string folders[] = {options.module_dir, from_environment != nullptr ? from_environment : "",
                                 ProgramDirectory(), XENPROF_MODULE_DIR};
  std::string looked;
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    const std::string path = absl::StrCat(folder, "/", kHypervisorModuleFile);
    if (access(path.c_str(), F_OK) != 0) {
      absl::StrAppend(&looked, looked.empty() ? "" : ", ", folder);
      continue;
    }
    // Never unloaded: the objects it makes live in its code.
    void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
      const char* error = dlerror();
      return ExplainLoad(path, error != nullptr ? error : "no reason given");
    }
    const auto factory = reinterpret_cast<HypervisorModuleFactory>(dlsym(module, kHypervisorModuleFactory));
    if (factory == nullptr) {
      return absl::UnavailableError(absl::StrCat(path, " is not a module of xenprof"));
    }
    absl::Status status;
    std::unique_ptr<Hypervisor> hypervisor(factory(kHypervisorModuleAbi, &status));
    if (hypervisor == nullptr) {
      if (status.ok()) status = absl::InternalError(absl::StrCat(path, " gave neither Xen nor a reason"));
      return status;
    }
    return hypervisor;
  }
  return absl::UnavailableError(
      absl::StrCat(kHypervisorModuleFile, " is not installed (looked in ", looked, ")"));
}

}  // namespace xenprof::xen
