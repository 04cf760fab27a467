#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# gvisor.sh LIST OUT [SECONDS]: runs gVisor's system-call tests (GoogleTest) one file after another, where it is started: natively in a
# chroot or in a machine of the same files. LIST has the names of programs in /t, one in each line; each may take SECONDS (120). What a
# program prints is OUT/NAME; OUT/summary has a line for each test case: the program, the case, and how it ended (OK, FAILED, SKIPPED,
# ENDED if it ended the program, LATE if it was running when the time was over). A program that ended early goes on behind the case that
# ended it; one that is in OUT/done is not run again, so that a run goes on behind a program that ended the machine. Two summaries, of
# Linux and of a machine, are what to compare.
set -uo pipefail
list=$1 out=$2 limit=${3:-120}
export HOME=/tmp TMPDIR=/tmp TEST_TMPDIR=/tmp TEST_BIN=/t PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
mkdir -p "$out"
touch "$out/summary" "$out/done"

# The cases of $1, as GoogleTest lists them: a suite's name, and its cases below it.
cases() {
  "/t/$1" --gtest_list_tests 2>/dev/null </dev/null | sed 's/ *#.*//' | while IFS= read -r line; do
    case $line in
    "  "*) echo "$suite${line#  }" ;;
    *.) suite=$line ;;
    esac
  done | grep -v 'DISABLED_'
}

while read -r name; do
  if [[ -z $name || $name == \#* ]] || grep -qx "$name" "$out/done"; then continue; fi
  if [[ -e $out/$name ]]; then
    echo "$name - ENDED-THE-MACHINE" >>"$out/summary"
    echo "$name" >>"$out/done"
    continue
  fi
  : >"$out/$name"
  # Some narrow the range of ports, whose connections in TIME-WAIT would leave none to the next program.
  if [[ -w /proc/sys/net/ipv4/ip_local_port_range ]]; then echo 32768 60999 >/proc/sys/net/ipv4/ip_local_port_range; fi
  work=$(mktemp -d)
  cases "$name" >"$work/left"
  : >"$work/ended"
  started=$SECONDS
  while [[ -s $work/left ]]; do
    rest=$((limit - (SECONDS - started)))
    if ((rest < 5)); then break; fi
    # A file of flags, as the names can be longer than an argument may be.
    echo "--gtest_filter=$(paste -s -d: "$work/left")" >"$work/flags"
    (cd "$TMPDIR" && timeout -k 3 "$rest" "/t/$name" "--gtest_flagfile=$work/flags") >"$work/printed" 2>&1 </dev/null
    status=$?
    cat "$work/printed" >>"$out/$name"
    grep -aoE '\[ +(OK|FAILED|SKIPPED) +\] [^ ,]+(,.*)? \([0-9]+ ms\)' "$work/printed" | sed -E 's/^\[ +([A-Z]+) +\] ([^ ,]+).*/\2 \1/' >"$work/now"
    last=$(grep -aoE '\[ RUN      \] [^ ]+' "$work/printed" | tail -n 1)
    last=${last##* }
    if [[ -n $last ]] && ! grep -qF "$last " "$work/now"; then
      if ((status == 124 || status == 137)); then echo "$last LATE"; else echo "$last ENDED"; fi >>"$work/now"
    fi
    if [[ ! -s $work/now ]]; then break; fi
    cat "$work/now" >>"$work/ended"
    cut -d' ' -f1 "$work/now" | grep -vxFf - "$work/left" >"$work/next"
    mv "$work/next" "$work/left"
  done
  sed "s/^/$name /" "$work/ended" >>"$out/summary"
  sed "s/^/$name /; s/\$/ NOT-RUN/" "$work/left" >>"$out/summary"
  echo "$name" >>"$out/done"
  rm -rf "$work"
done <"$list"
