# For the script that runs inside dom0. Everything left in /out is carried out.
# shellcheck shell=bash
step() { echo "xenlab: [$(cut -d' ' -f1 /proc/uptime)] $*" | tee /dev/hvc0; }

# run NAME COMMAND...: leaves NAME.out, NAME.err and NAME.status.
run() {
  local name=$1 status
  shift
  step "$name: $*"
  timeout 200 "$@" >"/out/$name.out" 2>"/out/$name.err"
  status=$?
  echo $status >"/out/$name.status"
  [ $status -eq 0 ] || step "$name ended with $status: $(tail -n 1 "/out/$name.err")"
}

# pmu_state NAME: both values, or the error of reading them.
pmu_state() {
  {
    cat /sys/hypervisor/pmu/pmu_features 2>&1
    cat /sys/hypervisor/pmu/pmu_mode 2>&1
  } >"/out/$1.pmu"
  step "$1: $(tr '\n' ' ' <"/out/$1.pmu")"
}

# pmu_set FEATURES MODE, mode first when it frees what features need.
pmu_set() {
  printf '%s\n' "$1" >/sys/hypervisor/pmu/pmu_features
  printf '%s\n' "$2" >/sys/hypervisor/pmu/pmu_mode
}

# The emulated processor is ten times slower than a real one, so the daemon's budget of CPU time would lower the frequency.
unlimited() { sed -i 's/^cpu_permille = .*/cpu_permille = 0/' "$(find /etc /usr/local/etc -name xenprofd.toml)"; }

doctor() {
  run doctor xenprofctl doctor
  run doctor-json xenprofctl doctor --json
}

# snapshot NAME SECONDS, and the exports a user would make.
snapshot() {
  run "$1-snapshot" xenprofctl snapshot --seconds "$2" -o "/out/$1.xenprof"
  run "$1-folded" xenprofctl export --format folded -o "/out/$1.folded" "/out/$1.xenprof"
  run "$1-report" xenprofctl report --json "/out/$1.xenprof"
}

guest_create() {
  cat >/session/guest1.cfg <<'CONFIG'
name = "guest1"
type = "pv"
kernel = "/session/vmlinuz"
ramdisk = "/session/guest-initrd.gz"
memory = 128
vcpus = 1
cpu_weight = 64
CONFIG
  run "$1" xl create /session/guest1.cfg
}

guest_destroy() { run "$1" xl destroy guest1; sleep 1; }

load=()
# Short processes, a program that computes, one that calls the kernel, and hypercalls from `xl`.
# All of it gives way to the commands of the script.
load_start() {
  nice bash -c 'while :; do /bin/true; done' & load+=($!)
  nice awk 'BEGIN { for (;;) x = x * 3 + 1 }' & load+=($!)
  nice dd if=/dev/zero of=/dev/null bs=64k 2>/dev/null & load+=($!)
  nice bash -c 'while :; do xl list >/dev/null; done' & load+=($!)
}
load_stop() { kill "${load[@]}" 2>/dev/null; wait "${load[@]}" 2>/dev/null; load=(); }
