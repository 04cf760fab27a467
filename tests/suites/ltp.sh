#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# ltp.sh LIST OUT [SECONDS]: runs tests of the Linux Test Project one after another, where it is started: natively or in a machine
# whose image has LTP below /opt/ltp. LIST has lines of LTP's runtest files; each test may take SECONDS (40). What a test prints is
# OUT/NAME; OUT/summary has a line for each: its name, its exit status, how often it passed, failed, broke and was left out. Two
# summaries, of Linux and of a machine, are what to compare. A test that is in the summary already is not run again, so that a run
# goes on behind a test that ended the machine.
set -uo pipefail
list=$1 out=$2 limit=${3:-40}
export LTPROOT=/opt/ltp PATH=/opt/ltp/testcases/bin:$PATH TMPDIR=/tmp HOME=/root
export KCONFIG_SKIP_CHECK=1 LTP_TIMEOUT_MUL=${LTP_TIMEOUT_MUL:-0.5} LTP_COLORIZE_OUTPUT=n LTP_SINGLE_FS_TYPE=${LTP_SINGLE_FS_TYPE:-tmpfs}
mkdir -p "$out"
touch "$out/summary"
while read -r name command; do
  if [[ -z $name || $name == \#* ]] || grep -q "^$name " "$out/summary"; then continue; fi
  if [[ -e $out/$name ]]; then
    echo "$name ended-the-machine" >>"$out/summary"
    continue
  fi
  cd "$TMPDIR" || exit 1
  timeout -k 3 "$limit" bash -c "$command" >"$out/$name" 2>&1 </dev/null
  status=$?
  counts=$(for word in TPASS TFAIL TBROK TCONF; do grep -c "$word" "$out/$name"; done)
  echo "$name $status ${counts//$'\n'/ }" >>"$out/summary"
  # A test that was ended leaves its device mounted, which the next one wants.
  while read -r _ place _; do
    [[ $place != "$TMPDIR"/LTP_* ]] || umount -l "$place"
  done </proc/mounts
  rm -rf "${TMPDIR:?}"/LTP_*
done <"$list"
