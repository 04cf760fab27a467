#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# runtime-tools.sh SOURCE RUNTIME OUT [SECONDS [CASE...]]: runs the cases of OCI runtime-tools (`validation/*`) with the runtime RUNTIME, as
# the superuser. SOURCE is a clone of github.com/opencontainers/runtime-tools; Go builds it once. Each case may take SECONDS (120). What
# a case prints is OUT/CASE; OUT/summary has a line for each check of it: its case, ok, skip or fail, its name. A case that says nothing
# has one line, `end`. Two summaries, of runc and of another runtime, are what to compare.
set -uo pipefail
source=$(readlink -f "$1") runtime=$(readlink -f "$2") limit=${4:-120}
mkdir -p "$3"
out=$(readlink -f "$3")
cases=("${@:5}")
if [[ ${#cases[@]} -eq 0 ]]; then mapfile -t cases < <(cd "$source/validation" && printf '%s\n' */ | sed 's:/$::' | grep -vx util); fi
if [[ ! -x $source/runtimetest ]]; then (cd "$source" && make runtimetest) || exit; fi

groups() { find /sys/fs/cgroup -mindepth 2 -type d 2>/dev/null | sort; }

for name in "${cases[@]}"; do
  program=$source/validation/$name/$name.t
  if [[ ! -x $program ]]; then (cd "$source" && make "validation/$name/$name.t") || exit; fi
  temporary=$(mktemp -d /tmp/runtime-tools.XXXXXX)
  chmod 755 "$temporary"
  before=$(groups)
  # The cases find the program that looks around in the container, and the archive of its root, where they run.
  (cd "$source" && TMPDIR=$temporary RUNTIME=$runtime timeout -k 10 "$limit" "$program") >"$out/$name" 2>&1 </dev/null
  code=$?
  # What a case left: containers by their ids, which are those of their bundles' processes, and groups that were not there before.
  for container in $("$runtime" list -q 2>>"$out/$name"); do
    bundle=$("$runtime" state "$container" | jq -r .bundle)
    if [[ $bundle == "$temporary"/* ]]; then timeout 30 "$runtime" delete -f "$container" >>"$out/$name" 2>&1; fi
  done
  comm -13 <(printf '%s\n' "$before") <(groups) | sort -r | xargs -r rmdir 2>>"$out/$name"
  awk -v below="$temporary/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r | xargs -r umount -l
  rm -rf "$temporary"
  if [[ -e $out/summary ]]; then sed -i "/^$name /d" "$out/summary"; fi
  sed -nE "s/^ok [0-9]+( -)? (.*) # SKIP.*/$name skip \2/p; t; s/^ok [0-9]+( -)? ?/$name ok /p; s/^not ok [0-9]+( -)? ?/$name fail /p" \
    "$out/$name" >>"$out/summary"
  if [[ $code -eq 0 ]]; then echo "$name ok end"; else echo "$name fail end $code"; fi >>"$out/summary"
done
