// What could not be read, for people: one text of several remarks.
#ifndef XENPROF_SYMBOLS_PROBLEMS_H_
#define XENPROF_SYMBOLS_PROBLEMS_H_

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace xenprof::symbols {

// The same remark is made once, however many files give cause for it.
inline void AddProblem(std::string* problems, absl::string_view problem) {
  if (problem.empty() || absl::StrContains(*problems, problem)) return;
  if (!problems->empty()) *problems += "; ";
  problems->append(problem.data(), problem.size());
}

}  // namespace xenprof::symbols

#endif  // XENPROF_SYMBOLS_PROBLEMS_H_
