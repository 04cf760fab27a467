#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# bash.sh build SOURCE OUT: makes a folder OUT of bash's own tests, from its unpacked source, and their helpers.
# bash.sh run RESULTS: runs them, in that folder, by /bin/bash. RESULTS/summary says PASS or FAIL of each, as their authors mean it:
# what a test prints beyond what is expected of it; RESULTS/output has that.
set -eu

case $1 in
build)
  source=$2 out=$3
  cp -r "$source/tests" "$out"
  mkdir "$out/include"
  # In place of what bash's configure generates.
  printf '#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n#define HAVE_UNISTD_H 1\n' >"$out/include/config.h"
  echo '#include <config.h>' >"$out/include/bashansi.h"
  for helper in recho zecho xcase printenv; do
    cc -w -static -I "$out/include" "$source/support/$helper.c" -o "$out/$helper"
  done
  ;;
run)
  results=$2
  mkdir -p "$results/output"
  : >"$results/summary"
  PATH=$PWD:$PATH THIS_SH=/bin/bash BUILD_DIR=. TMPDIR=/tmp BASH_TSTOUT=/tmp/bash-tests-$$
  export PATH THIS_SH BUILD_DIR TMPDIR BASH_TSTOUT
  for test in run-*; do
    case $test in run-all | run-minimal | run-gprof | *.orig) continue ;; esac
    how=PASS
    timeout 120 sh "./$test" >"$results/output/$test" 2>&1 </dev/null || how=FAIL
    if grep -q '^[<>]' "$results/output/$test"; then how=FAIL; fi
    echo "$how $test" >>"$results/summary"
    rm -f "$BASH_TSTOUT"
  done
  ;;
esac
