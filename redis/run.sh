#!/bin/sh
# Boots redis with plain QEMU. The console is this terminal; the machine's status lines go to the file `status`, and
# its last one holds the program's exit code. Written by `unilith build`.
cd "$(dirname "$0")" || exit 1
: > status
qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -M microvm,x-option-roms=off,pit=off,pic=off,rtc=on,isa-serial=on,auto-kernel-cmdline=off,memory-backend=memory -accel tcg -cpu max -m 65536k -smp 1 -object memory-backend-ram,id=memory,size=65536k,reserve=off -kernel kernel -initrd root.cpio -append 'ip=10.0.2.15/24 gw=10.0.2.2 dns=10.0.2.3 published=6379 hostname=redis cwd=/ input=null env.PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin env.HOME=/root -- /usr/bin/redis-server --protected-mode no --save % --dir /data' -chardev stdio,id=console,signal=off -serial chardev:console -chardev file,id=status,path=status -device isa-debugcon,iobase=0xe9,chardev=status -device isa-debug-exit,iobase=0xf4,iosize=0x04 -device virtio-rng-device -netdev user,id=net0,hostfwd=tcp:127.0.0.1:6379-:6379 -device virtio-net-device,netdev=net0,mac=52:55:8a:d7:9c:64
code=$(sed -n 's/^exit //p' status)
exit "${code:-125}"
