// Makes a profile out of chunks.
#ifndef XENPROF_PROFILE_BUILD_H_
#define XENPROF_PROFILE_BUILD_H_

#include <vector>

#include "absl/status/statusor.h"
#include "xenprof/profile/inputs.h"
#include "xenprof/profile/profile.h"

namespace xenprof::profile {

struct BuildOptions {
  Granularity granularity = Granularity::kFunction;
  // Dimensions samples are told apart by, beside stack, origin and host.
  bool by_task = true;
  // Tasks of one name count as one, whose pid and tid are 0: for formats that show nothing else of them.
  bool tasks_by_name = false;
  bool by_domain = true;
  bool by_cpu = false;
  // Inlined functions and source lines where the chunks carry them.
  bool inlines = true;
  // Take what is good of damaged chunks; the rest is told in Coverage.damage.
  bool salvage = false;
};

// Reads the part of `inputs` that lies in `window`; memory follows what is read, one chunk's tables at a
// time. NotFound when no input touches the window. An error of a chunk reads "FILE: offset N: reason". What
// comes back has passed Profile::Check, and its samples are as many as the chunks' trailers say.
absl::StatusOr<Profile> BuildProfile(std::vector<Input> inputs, const TimeWindow& window,
                                     const BuildOptions& options = {});

}  // namespace xenprof::profile

#endif  // XENPROF_PROFILE_BUILD_H_
