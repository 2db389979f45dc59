// One chunk's tables in a profile's words: names looked up, inlined functions unfolded, ids made common.
#ifndef XENPROF_PROFILE_TRANSLATOR_H_
#define XENPROF_PROFILE_TRANSLATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "xenprof/chunk/decoder.h"
#include "xenprof/profile/interner.h"
#include "xenprof/profile/profile.h"

namespace xenprof::profile {

// A path's last part; names in brackets and "//anon" stay whole.
absl::string_view ModuleName(absl::string_view mapping_name);

// What to call a task: its comm, and the idle task, which has no name of its own in every chunk, "swapper".
absl::string_view TaskName(const merge::Task& task);

// What to call what nobody could name, after its start or, where not even that is known, the address:
// "libc.so.6+0x1234", "[kernel]+0xffffffff81000000", and for a guest, whose addresses say nothing here,
// "[guest kernel]".
std::string UnnamedFunction(const merge::Mapping& mapping, uint64_t address);

// Made once all payloads of the chunk are in `decoder`. Everything is translated when first asked for.
class Translator {
 public:
  // `inlines`: unfold inlined functions (kFunction) or keep lines (kAddress) where the chunk has them.
  Translator(const chunk::ChunkDecoder& decoder, uint32_t host, Granularity granularity, bool inlines,
             Interner* interner);

  uint32_t Node(uint32_t stack);  // not remembered: asked once of each
  uint32_t Task(uint32_t task);
  // The task that stands for all of that name.
  uint32_t TaskOfName(uint32_t task);
  uint32_t Domain(uint32_t domain);

 private:
  uint32_t Binary(uint32_t mapping);
  StringId Module(uint32_t mapping);
  // What a frame of the chunk is in the profile, as an entry of frames_, never 0.
  uint32_t Frames(uint32_t frame, bool is_leaf) {
    const uint32_t known = frames_[is_leaf][frame];
    return known != 0 ? known : (frames_[is_leaf][frame] = TranslateFrame(frame, is_leaf));
  }
  uint32_t TranslateFrame(uint32_t frame, bool is_leaf);
  uint32_t FunctionAt(uint32_t mapping, uint64_t raw_address, uint64_t lookup_address,
                      absl::string_view inlined_name);
  uint32_t AddFunctionAt(uint32_t mapping, uint64_t raw_address, const chunk::ChunkDecoder::Function& found);
  uint32_t Inner(uint32_t node);
  uint32_t Append(uint32_t parent, uint32_t frames);

  const chunk::ChunkDecoder& decoder_;
  const uint32_t host_;
  const Granularity granularity_;
  const bool inlines_;
  Interner* interner_;
  // Ids in the profile + 1, 0: not translated yet.
  std::vector<uint32_t> binaries_, modules_, tasks_, domains_, inner_nodes_;
  std::vector<std::vector<uint32_t>> functions_;  // by mapping, and place in its FunctionsOf
  // By frame, [is_leaf]: the same, or kSeveral and the place of as many inlined functions in frame_lists_.
  static constexpr uint32_t kSeveral = uint32_t{1} << 31;
  std::vector<uint32_t> frames_[2];
  std::vector<std::vector<uint32_t>> frame_lists_;  // innermost first
  std::vector<uint32_t> path_;                      // scratch
  std::vector<Line> lines_;                         // scratch
};

}  // namespace xenprof::profile

#endif  // XENPROF_PROFILE_TRANSLATOR_H_
