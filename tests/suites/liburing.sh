#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# liburing.sh DIRECTORY OUT [SECONDS]: runs liburing's own tests (the *.t of its test directory) one after another, where it is started:
# natively, or in a machine of the same files. Each may take SECONDS (20). OUT/NAME is what a program prints, OUT/summary has a line for
# each: the name, and PASSED, FAILED with its status, SKIPPED (the program says that the kernel lacks what it tests) or LATE. A program
# that has a line is not run again, and one that has a file and no line ended the machine, so that a run goes on where it broke off.
set -uo pipefail
programs=$1 out=$2 limit=${3:-20}
mkdir -p "$out"
touch "$out/summary"
for program in "$programs"/*.t; do
  name=$(basename "$program" .t)
  if grep -q "^$name " "$out/summary"; then continue; fi
  if [[ -e $out/$name ]]; then
    echo "$name ENDED-THE-MACHINE" >>"$out/summary"
    continue
  fi
  : >"$out/$name"
  work=$(mktemp -d)
  (cd "$work" && timeout -k 2 "$limit" "$program") >"$out/$name" 2>&1 </dev/null
  status=$?
  rm -rf "$work"
  case $status in
  0) verdict=PASSED ;;
  77) verdict=SKIPPED ;;
  124 | 137) verdict=LATE ;;
  *) verdict="FAILED $status" ;;
  esac
  echo "$name $verdict" >>"$out/summary"
done
cut -d' ' -f2 "$out/summary" | sort | uniq -c
