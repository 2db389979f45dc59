#include "xenprof/xen/vpmu.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "xenprof/xen/cmdline.h"

namespace xenprof::xen {
namespace {

void AddNote(VpmuOutcome* outcome, bool warning, std::string text) {
  outcome->notes.push_back({warning, std::move(text)});
}

void AddNote(VpmuOutcome* outcome, const PmuDecision& decision, int error, const PmuHostFacts& host,
             absl::string_view prefix = "") {
  AddNote(outcome, true, absl::StrCat(prefix, ExplainPmuDecision(decision, error, host)));
}

bool IsGlobal(const PmuHostFacts& host) {
  return host.command_line_known && ParseXenCommandLine(host.command_line).vpmu == VpmuOption::kGlobal;
}

void Summarize(VpmuOutcome* outcome) {
  outcome->usable = outcome->mode != PmuMode::kOff;
  outcome->name = outcome->usable ? std::string(PmuModeName(outcome->mode)) : "";
  outcome->hv_stacks = outcome->usable && (outcome->features & kPmuFeatureHvStacktrace) != 0;
  if (outcome->usable) outcome->no_pmu_reason.clear();
  if (!outcome->usable || outcome->hv_stacks) outcome->no_stacks_reason.clear();
  if (!outcome->usable && outcome->no_pmu_reason.empty()) {
    outcome->no_pmu_reason = "Xen's vPMU is off, and the configuration asks for it to be left alone.";
  }
}

// Sees what is set. False: the PMU is not to be had, and a note says why.
bool Observe(PmuFiles& files, const PmuHostFacts& host, VpmuOutcome* outcome) {
  if (IsGlobal(host)) {
    outcome->usable = true;
    outcome->name = "global";
    outcome->hv_stacks_unknown = true;
    AddNote(outcome, false,
            "Xen runs with vpmu=global: dom0 drives the PMU of the whole machine and there is nothing to "
            "switch on.");
    return false;
  }
  int error = ReadPmuMode(files, &outcome->mode);
  if (error == 0) error = ReadPmuFeatures(files, &outcome->features);
  if (error == 0) return true;
  outcome->mode = PmuMode::kOff;
  outcome->cause = FindPmuCause(host);
  outcome->no_pmu_reason = ExplainPmuDecision(DecidePmu(PmuStep::kRead, error, outcome->cause), error, host);
  AddNote(outcome, DecidePmu(PmuStep::kRead, error, outcome->cause), error, host);
  return false;
}

void SetFeatures(PmuFiles& files, const PmuHostFacts& host, VpmuOutcome* outcome) {
  const uint64_t wanted = outcome->features | kPmuFeatureHvStacktrace;
  if (wanted == outcome->features) return;
  const int error = WritePmuFeatures(files, wanted);
  const PmuDecision& decision = DecidePmu(PmuStep::kSetFeatures, error, PmuCause::kAny);
  if (decision.action != PmuAction::kProceed) {
    AddNote(outcome, decision, error, host);
    outcome->no_stacks_reason = outcome->notes.back().text;
    return;
  }
  uint64_t now = 0;
  if (ReadPmuFeatures(files, &now) == 0 && now == wanted) {
    outcome->features = now;
  } else {
    AddNote(outcome, true, absl::StrFormat("pmu_features took 0x%x but reads back as 0x%x.", wanted, now));
    outcome->no_stacks_reason = outcome->notes.back().text;
    outcome->features = now;
  }
}

void SetMode(PmuFiles& files, const VpmuRequest& request, VpmuOutcome* outcome) {
  for (PmuMode mode : kPmuModePreference) {
    if (mode > request.max_mode) continue;
    if (mode <= outcome->mode) return;  // as good as what may be asked for
    const int error = WritePmuMode(files, mode);
    const PmuDecision& decision = DecidePmu(PmuStep::kSetMode, error, PmuCause::kAny);
    if (decision.action == PmuAction::kProceed) {
      PmuMode now = PmuMode::kOff;
      if (ReadPmuMode(files, &now) == 0 && now == mode) {
        outcome->mode = now;
        return;
      }
      AddNote(
          outcome, true,
          absl::StrCat("pmu_mode took ", PmuModeName(mode), " but reads back as ", PmuModeName(now), "."));
      outcome->mode = now;
      continue;
    }
    AddNote(outcome, decision, error, request.host, absl::StrCat("Mode ", PmuModeName(mode), ": "));
    outcome->no_pmu_reason = outcome->notes.back().text;
    if (decision.action == PmuAction::kNoPmu) return;
  }
}

void ExplainMode(const VpmuRequest& request, VpmuOutcome* outcome) {
  switch (outcome->mode) {
    case PmuMode::kOff:
      AddNote(outcome, true, "The vPMU stays off: without it only dom0 is seen, by a software clock.");
      break;
    case PmuMode::kSelf:
      AddNote(outcome, true, "vPMU mode self: dom0 sees itself only, neither Xen nor guests.");
      break;
    case PmuMode::kHv:
      AddNote(outcome, request.max_mode == PmuMode::kAll,
              "vPMU mode hv: dom0 sees itself and Xen working for it; guests, and Xen working for them, are "
              "not seen.");
      break;
    case PmuMode::kAll:
      AddNote(outcome, false,
              request.max_mode == PmuMode::kAll
                  ? "vPMU mode all: dom0 sees the whole machine; guests started meanwhile have no vPMU."
                  : "vPMU mode all was set by someone else and is left alone, though the configuration asks "
                    "for less.");
      break;
  }
}

// The part that writes, with the old values safe.
void Switch(PmuFiles& files, const VpmuRequest& request, VpmuOutcome* outcome) {
  SetFeatures(files, request.host, outcome);
  SetMode(files, request, outcome);
}

bool NothingToChange(const VpmuRequest& request, const VpmuOutcome& outcome) {
  return request.max_mode == PmuMode::kOff ||
         (outcome.mode >= request.max_mode && (outcome.features & kPmuFeatureHvStacktrace) != 0);
}

struct RestoreResult {
  bool complete = true;
  std::vector<VpmuNote> notes;
};

RestoreResult RestoreValues(PmuFiles& files, const SavedVpmu& saved, const PmuHostFacts& host) {
  RestoreResult result;
  const auto refuse = [&](PmuStep step, int error) {
    result.complete = false;
    result.notes.push_back({true, ExplainPmuDecision(DecidePmu(step, error, PmuCause::kAny), error, host)});
  };
  PmuMode mode = PmuMode::kOff;
  int error = ReadPmuMode(files, &mode);
  if (error == 0 && mode != saved.mode) error = WritePmuMode(files, saved.mode);
  if (error != 0) refuse(PmuStep::kRestoreMode, error);
  uint64_t features = 0;
  error = ReadPmuFeatures(files, &features);
  if (error == 0 && features != saved.features) error = WritePmuFeatures(files, saved.features);
  if (error != 0) refuse(PmuStep::kRestoreFeatures, error);
  return result;
}

// The saved values that count in this boot, if any; sets `note` when a file was found that does not count.
absl::StatusOr<std::optional<SavedVpmu>> LoadForThisBoot(VpmuStore& store, const std::string& boot_id,
                                                         std::string* note) {
  absl::StatusOr<std::optional<SavedVpmu>> loaded = store.Load();
  if (absl::IsInvalidArgument(loaded.status())) {
    *note = std::string(loaded.status().message());
    return std::optional<SavedVpmu>();
  }
  if (!loaded.ok() || !loaded->has_value()) return loaded;
  if ((*loaded)->boot_id == boot_id) return loaded;
  absl::Status removed = store.Remove();
  if (!removed.ok()) return removed;
  *note = "The vPMU values saved before the last reboot were dropped: Xen has started anew since.";
  return std::optional<SavedVpmu>();
}

}  // namespace

VpmuControl::VpmuControl(const VpmuOptions& options)
    : options_(options),
      own_files_(std::make_unique<SysfsPmuFiles>(options.sysfs_root)),
      files_(own_files_.get()),
      store_(options.state_dir) {}

VpmuControl::VpmuControl(const VpmuOptions& options, PmuFiles* files)
    : options_(options), files_(files), store_(options.state_dir) {}

VpmuOutcome VpmuControl::Enable(const VpmuRequest& request) {
  VpmuOutcome outcome;
  if (!Observe(*files_, request.host, &outcome)) return outcome;

  const auto leave_alone = [&](absl::string_view reason) {
    AddNote(&outcome, true, absl::StrCat("The vPMU is left as it is: ", reason, "."));
    outcome.no_pmu_reason = outcome.no_stacks_reason = outcome.notes.back().text;
    ExplainMode(request, &outcome);
    Summarize(&outcome);
    return outcome;
  };
  if (absl::Status locked = store_.Lock(); !locked.ok()) {
    if (NothingToChange(request, outcome)) {
      ExplainMode(request, &outcome);
      Summarize(&outcome);
      return outcome;
    }
    return leave_alone(locked.message());
  }
  const absl::StatusOr<std::string> boot_id = ReadBootId(options_.proc_root);
  if (!boot_id.ok()) return leave_alone(boot_id.status().message());
  std::string note;
  absl::StatusOr<std::optional<SavedVpmu>> saved = LoadForThisBoot(store_, *boot_id, &note);
  if (!saved.ok()) return leave_alone(saved.status().message());
  if (!note.empty()) AddNote(&outcome, true, note);
  const SavedVpmu old = saved->value_or(SavedVpmu{*boot_id, outcome.mode, outcome.features});
  if (saved->has_value()) {
    AddNote(&outcome, false,
            absl::StrFormat(
                "A previous run did not end in order: mode %s and features 0x%x, saved by it, are what "
                "will be put back.",
                PmuModeName(old.mode), old.features));
  }
  if (!NothingToChange(request, outcome)) {
    if (!saved->has_value()) {
      if (absl::Status kept = store_.Save(old); !kept.ok()) {
        return leave_alone(absl::StrCat("the old values could not be saved first, ", kept.message()));
      }
    }
    Switch(*files_, request, &outcome);
  }
  if (outcome.mode == PmuMode::kOff && outcome.features != old.features) {
    // bit 3 without a mode is of no use to anyone
    if (WritePmuFeatures(*files_, old.features) == 0) outcome.features = old.features;
  }
  if (outcome.mode == old.mode && outcome.features == old.features) {
    if (absl::Status removed = store_.Remove(); !removed.ok())
      AddNote(&outcome, true, std::string(removed.message()));
  }
  ExplainMode(request, &outcome);
  Summarize(&outcome);
  return outcome;
}

absl::StatusOr<std::vector<VpmuNote>> VpmuControl::Restore(const PmuHostFacts& host) {
  if (absl::Status locked = store_.Lock(); !locked.ok()) {
    // Without the lock nothing was changed by us; without a state directory nothing can have been saved.
    if (absl::IsNotFound(locked)) return std::vector<VpmuNote>();
    return locked;
  }
  const absl::StatusOr<std::string> boot_id = ReadBootId(options_.proc_root);
  if (!boot_id.ok()) return boot_id.status();
  std::string note;
  absl::StatusOr<std::optional<SavedVpmu>> saved = LoadForThisBoot(store_, *boot_id, &note);
  if (!saved.ok()) return saved.status();
  std::vector<VpmuNote> notes;
  if (!note.empty()) notes.push_back({true, note});
  if (!saved->has_value()) return notes;
  RestoreResult result = RestoreValues(*files_, **saved, host);
  notes.insert(notes.end(), result.notes.begin(), result.notes.end());
  if (result.complete) {
    if (absl::Status removed = store_.Remove(); !removed.ok()) return removed;
    notes.push_back({false, absl::StrFormat("The vPMU is as it was: mode %s, features 0x%x.",
                                            PmuModeName((*saved)->mode), (*saved)->features)});
  }
  return notes;
}

absl::StatusOr<std::string> RestoreSaved(const VpmuOptions& options, PmuFiles* files) {
  SysfsPmuFiles sysfs(options.sysfs_root);
  VpmuControl control(options, files != nullptr ? files : &sysfs);
  absl::StatusOr<std::vector<VpmuNote>> notes = control.Restore();
  if (!notes.ok()) return notes.status();
  std::string text;
  bool complete = true;
  for (const VpmuNote& note : *notes) {
    absl::StrAppend(&text, text.empty() ? "" : " ", note.text);
  }
  VpmuStore store(options.state_dir);
  if (absl::StatusOr<std::optional<SavedVpmu>> left = store.Load(); left.ok() && left->has_value())
    complete = false;
  if (!complete) return absl::UnavailableError(text);
  return text.empty() ? "No saved vPMU values: nothing to put back." : text;
}

VpmuOutcome EnableAtBoot(const VpmuOptions& options, const VpmuRequest& request, PmuFiles* files) {
  SysfsPmuFiles sysfs(options.sysfs_root);
  PmuFiles& used = files != nullptr ? *files : sysfs;
  VpmuOutcome outcome;
  if (!Observe(used, request.host, &outcome)) return outcome;
  if (!NothingToChange(request, outcome)) Switch(used, request, &outcome);
  ExplainMode(request, &outcome);
  Summarize(&outcome);
  return outcome;
}

}  // namespace xenprof::xen
