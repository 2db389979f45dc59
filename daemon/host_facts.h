// What a chunk says of the machine it is from.
#ifndef DAEMON_HOST_FACTS_H_
#define DAEMON_HOST_FACTS_H_

#include <string>
#include <vector>

#include "chunk.pb.h"
#include "xenprof/merge/assembler.h"

namespace xenprof::daemon {

// `root` stands for "/". What cannot be read stays empty.
proto::Host ReadHostFacts(const std::string& root = "");

struct KernelText {
  std::vector<merge::TextRange> ranges;  // "[kernel]" and "[module]", ascending
  bool restricted = false;               // addresses are hidden (kptr_restrict): there are no ranges then
};
KernelText ReadKernelText(const std::string& root = "");

// A text that changes when a module comes or goes.
std::string ModuleFingerprint(const std::string& root = "");

}  // namespace xenprof::daemon

#endif  // DAEMON_HOST_FACTS_H_
