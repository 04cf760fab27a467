#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# runc.sh SOURCE RUNTIME OUT [SECONDS [FILE...]]: runs runc's integration tests (`tests/integration/*.bats`) with the runtime RUNTIME, as
# the superuser. SOURCE is Debian's source package of runc, unpacked; bats, jq, gawk, gcc, busybox-static, libseccomp-dev and Go are there.
# Each file may take SECONDS (300). What a file prints is OUT/FILE; OUT/summary has a line for each test: its file, ok, skip or fail,
# its name. A test that its file did not come to is missing. Two summaries, of runc and of another runtime, are what to compare. The
# suite's root file systems are made of Debian's packages, and its programs are built from SOURCE once.
set -uo pipefail
source=$(readlink -f "$1") runtime=$(readlink -f "$2") limit=${4:-300}
mkdir -p "$3"
out=$(readlink -f "$3")
tests=$source/tests/integration
files=("${@:5}")
if [[ ${#files[@]} -eq 0 ]]; then files=("$tests"/*.bats); fi

# What the image of busybox at docker.io has.
make_busybox() {
  local root
  root=$(mktemp -d)
  mkdir -p "$root"/{bin,dev,etc,home,root,tmp,usr/sbin,var/spool/mail,var/www}
  chmod 1777 "$root/tmp"
  chmod 755 "$root"
  cp /bin/busybox "$root/bin/busybox"
  for applet in $(/bin/busybox --list); do
    if [[ $applet != busybox ]]; then ln "$root/bin/busybox" "$root/bin/$applet"; fi
  done
  printf '%s\n' root:x:0:0:root:/root:/bin/sh daemon:x:1:1:daemon:/usr/sbin:/bin/false \
    nobody:x:65534:65534:nobody:/home:/bin/false >"$root/etc/passwd"
  printf '%s\n' root:x:0: daemon:x:1: tty:x:5: nobody:x:65534: >"$root/etc/group"
  tar -C "$root" -cJf "$1" .
  rm -r "$root"
}

# As much of Debian as has a shell, ldconfig and their libraries.
make_debian() {
  local root packages
  root=$(mktemp -d) packages=$(mktemp -d)
  mkdir -p "$root"/{dev,proc,sys,tmp,root}
  chmod 755 "$root"
  (cd "$packages" && apt-get -qq -o APT::Sandbox::User=root download base-files libc6 libc-bin bash dash coreutils sed grep libtinfo6 libselinux1 \
    libpcre2-8-0 libacl1 libattr1 libgmp10) || return
  for package in "$packages"/*.deb; do dpkg -x "$package" "$root"; done
  # As the installation of its packages leaves it.
  if [[ ! -e $root/bin/sh ]]; then ln -s dash "$root/bin/sh"; fi
  ldconfig -r "$root"
  tar -C "$root" -cJf "$1" .
  rm -r "$root" "$packages"
}

architecture=$(go env GOARCH)
busybox=$tests/testdata/busybox-$architecture.tar.xz debian=$tests/testdata/debian-$architecture.tar.xz
if [[ ! -e $busybox ]]; then make_busybox "$busybox" || exit; fi
if [[ ! -e $debian ]]; then make_debian "$debian" || exit; fi
for program in recvtty sd-helper seccompagent; do
  folder=$source/contrib/cmd/$program
  if [[ ! -x $folder/$program ]]; then (cd "$folder" && GOFLAGS=-mod=mod go build -tags seccomp -o "$program" .) || exit; fi
done

# Ends what a file left: its processes are in its session, and its containers' in their groups.
clean() {
  local folder group
  for folder in "$1"/bats-run-*/runc.*; do
    if [[ ! -d $folder/state ]]; then continue; fi
    for container in $("$runtime" --root "$folder/state" list -q); do
      timeout 30 "$runtime" --root "$folder/state" delete -f "$container"
    done
  done
  # Processes of containers whose records are gone already.
  for process in /proc/[0-9]*; do
    if [[ -e $process/cmdline ]] && tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -qF -- "--root $1/"; then kill -KILL "${process#/proc/}"; fi
  done
  awk -v below="$1/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r | xargs -r umount -l
  for group in /sys/fs/cgroup/*/runc-cgroups-integration-test /sys/fs/cgroup/runc-cgroups-integration-test; do
    if [[ ! -d $group ]]; then continue; fi
    # A test that ends early leaves a group frozen, in which nothing ends.
    find "$group" -name freezer.state -exec sh -c 'echo THAWED >"$0"' {} \;
    find "$group" -depth -type d -exec rmdir {} +
  done
  rm -rf "$1"
}

for file in "${files[@]}"; do
  name=$(basename "$file" .bats)
  temporary=$(mktemp -d /tmp/runc-tests.XXXXXX)
  chmod 711 "$temporary"
  # A terminal of its own: runc looks for /dev/tty where a container is to have one.
  (cd "$tests" && TMPDIR=$temporary BATS_TMPDIR=$temporary RUNC=$runtime timeout -k 10 "$limit" \
    script -qec "bats --tap $name.bats" /dev/null) 2>&1 </dev/null | tr -d '\r' >"$out/$name"
  clean "$temporary" >>"$out/$name" 2>&1
  if [[ -e $out/summary ]]; then sed -i "/^$name /d" "$out/summary"; fi
  sed -nE "s/^ok [0-9]+ (.*) # skip.*/$name skip \1/p; t; s/^ok [0-9]+ /$name ok /p; s/^not ok [0-9]+ /$name fail /p" "$out/$name" \
    >>"$out/summary"
done
