#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# glibc.sh SOURCE OUT [LIST [COMPILER...]]: compiles glibc's own tests of threads and signals, from its unpacked source, against the C
# library that is installed, and makes of them a root file system OUT/image for `suite` (tests/programs/suite.c): /t has the
# tests, /list their command lines. LIST: only the tests it names. COMPILER: with this compiler, for programs that are linked
# into Linux: at another place each, and only so many as there are places. Prints the tests that take glibc's private headers.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
source=$1 out=$2 list=${3-}
shift $(($# < 3 ? $# : 3))
mkdir -p "$out"/{include,support} "$out"/image/{bin,dev,etc,lib,lib64,proc,t,tmp} "$out/image/lib/x86_64-linux-gnu"
out=$(readlink -f "$out")
[[ -z $list ]] || list=$(readlink -f "$list")
cd "$source"

# What the tests include of glibc's own headers and that stands alone.
for header in include/{intprops,array_length,scratch_buffer,allocate_once,stap-probe,libc-diag,dso_handle}.h \
  sysdeps/x86_64/stackinfo.h sysdeps/x86/tst-stack-align.h sysdeps/unix/sysv/linux/socket-constants-time64.h test-skeleton.c; do
  if [[ -e $header ]]; then ln -sf "$PWD/$header" "$out/include/"; fi
done
# In place of what glibc's own build generates.
cat >"$out/include/config.h" <<'EOF'
#ifndef SUITE_CONFIG
#define SUITE_CONFIG
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#define libc_hidden_proto(...)
#define libc_hidden_def(...)
#define attribute_hidden __attribute__ ((visibility ("hidden")))
#define __set_errno(v) (errno = (v))
#define __glibc_unlikely(c) __builtin_expect ((c), 0)
#define __glibc_likely(c) __builtin_expect ((c), 1)
#define TIMEOUTFACTOR 4
#endif
EOF
echo '#include <config.h>' >"$out/include/libc-config.h"
cat >"$out/include/atomic.h" <<'EOF'
#pragma once
#include <stdatomic.h>
#define atomic_load_relaxed(m) __atomic_load_n (m, __ATOMIC_RELAXED)
#define atomic_load_acquire(m) __atomic_load_n (m, __ATOMIC_ACQUIRE)
#define atomic_store_relaxed(m, v) __atomic_store_n (m, v, __ATOMIC_RELAXED)
#define atomic_store_release(m, v) __atomic_store_n (m, v, __ATOMIC_RELEASE)
#define atomic_fetch_add_relaxed(m, v) __atomic_fetch_add (m, v, __ATOMIC_RELAXED)
EOF
{
  echo "-O2 -g0 -std=gnu11 -fgnu89-inline -D_GNU_SOURCE -DMODULE_NAME=testsuite -w -pthread -include config.h -I $out/include"
  printf -- '-I support'
  printf -- ' -idirafter %s' sysdeps/pthread nptl sysdeps/unix/sysv/linux . sysdeps/generic
  for name in SRCDIR OBJDIR INSTDIR LIBDIR BINDIR SBINDIR SLIBDIR ROOTSBINDIR SYSCONFDIR LOCALEDIR COMPLOCALEDIR; do
    printf -- ' -D%s_PATH=\\"/\\"' "$name"
  done
  echo ' -DOBJDIR_ELF_LDSO_PATH=\"/lib64/ld-linux-x86-64.so.2\"'
} >"$out/flags"

# libsupport, but for its programs and its own tests.
sources=(malloc/scratch_buffer_*.c)
for file in support/*.c; do
  case ${file#support/} in
  support_test_main.c | delayed_exit.c) ;;
  tst-* | test-* | *_main.c | shell-container.c | *-container.c | links-dso-program*) continue ;;
  esac
  sources+=("$file")
done
cat >"$out/support.sh" <<'EOF'
object=$out/support/$(basename "$1" .c).o
cc "@$out/flags" -c "$1" -o "$object" 2>/dev/null || rm -f "$object"
EOF
compiler=$*
export out compiler
printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -L1 sh "$out/support.sh"
rm -f "$out/libsupport.a"
ar rcs "$out/libsupport.a" "$out"/support/*.o

# Without: the names of modules and helpers; what cannot do without gdb, a second program of glibc's build, or hundreds of
# modules; and a variant that is in no list of glibc's.
tests=()
for file in nptl/tst-*.c sysdeps/pthread/tst-*.c signal/tst-*.c; do
  name=$(basename "$file" .c)
  case $name in
  *mod | *mod[0-9a-f] | *aux | *-common | *-static | tst-pthread-gdb-attach | tst-oddstacklimit | tst-stack4 | tst-cancelx1) continue ;;
  esac
  if [[ -z $list ]] || grep -qx "$name" "$list"; then tests+=("$file"); fi
done
cat >"$out/one.sh" <<'EOF'
place=$1 file=$2
name=$(basename "$file" .c) more=
case $name in tst-cancelx* | tst-cleanupx*) more="-fexceptions -fasynchronous-unwind-tables" ;; esac
case $name in tst-cleanup2) more=-fno-builtin ;; tst-minsigstksz*) more=-Wl,-z,now ;; esac
if [ -z "$compiler" ]; then set -- cc -rdynamic; else set -- $compiler --place "$place"; fi
"$@" "@$out/flags" $more "$file" -o "$out/image/t/$name" "$out/libsupport.a" -lm 2>/dev/null || echo "not compiled: $name"
EOF
for place in "${!tests[@]}"; do echo "$place ${tests[place]}"; done | xargs -P "$(nproc)" -L1 sh "$out/one.sh"
for file in nptl/tst-*mod*.c sysdeps/pthread/tst-*mod*.c; do
  cc "@$out/flags" -shared -fPIC "$file" -o "$out/image/lib/x86_64-linux-gnu/$(basename "$file" .c).so" 2>/dev/null ||
    echo "not compiled: $(basename "$file" .c)"
done

# What they need around them: libraries, a shell, users, and the file that tests of cancellation open.
for library in libc.so.6 libm.so.6 libgcc_s.so.1; do
  cp -L "/lib/x86_64-linux-gnu/$library" "$out/image/lib/x86_64-linux-gnu/"
done
cp -L /lib64/ld-linux-x86-64.so.2 "$out/image/lib64/"
cp "$(command -v busybox)" "$out/image/bin/"
for name in sh cat echo sleep true ls kill; do ln -sf busybox "$out/image/bin/$name"; done
echo root:x:0:0:root:/:/bin/sh >"$out/image/etc/passwd"
echo root:x:0: >"$out/image/etc/group"
: >"$out/image/Makefile"
# The last place is for what runs them.
if [[ -z $compiler ]]; then set -- cc -static; else set -- "$@" --place 14; fi
"$@" -O2 -Wall -Wextra -Werror "$here/../programs/suite.c" -o "$out/image/suite"
for test in "$out"/image/t/*; do
  name=$(basename "$test")
  case $name in
  tst-cancel7 | tst-cancelx7) printf '/t/%s\t--command\texec /t/%s\n' "$name" "$name" ;;
  tst-exec4) printf '/t/%s\t/t/%s\n' "$name" "$name" ;;
  tst-umask1) printf '/t/%s\t/tmp/umask\n' "$name" ;;
  *) printf '/t/%s\n' "$name" ;;
  esac
done >"$out/image/list"
