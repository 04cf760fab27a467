#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# list.sh LIST OUT [SECONDS]: runs tests of any suite one after another, where it is started: natively in a chroot or in a machine of
# the same files. LIST has a line for each test: a name and a command; each may take SECONDS (40). What a test prints is OUT/NAME;
# OUT/summary has its name and exit status. Two summaries, of Linux and of a machine, are what to compare. A test that is in the
# summary already is not run again, so that a run goes on behind a test that ended the machine.
set -uo pipefail
list=$1 out=$2 limit=${3:-40}
export HOME=/tmp TMPDIR=/tmp PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
mkdir -p "$out"
touch "$out/summary"
while read -r name command; do
  if [[ -z $name || $name == \#* ]] || grep -q "^$name " "$out/summary"; then continue; fi
  if [[ -e $out/$name ]]; then
    echo "$name ended-the-machine" >>"$out/summary"
    continue
  fi
  : >"$out/$name"
  # A file of the machine's own: a test that prints a byte at a time would measure the volume.
  printed=$(mktemp)
  timeout -k 3 "$limit" bash -c "$command" >"$printed" 2>&1 </dev/null
  status=$?
  cat "$printed" >"$out/$name"
  rm "$printed"
  echo "$name $status" >>"$out/summary"
done <"$list"
