#!/bin/sh
# PID 1 of a namespace node: builds the node's view of the machine, starts its sshd, and reaps orphans until it is killed.
# Usage: node_init.sh FOLDER NAME, with fresh mount, UTS, IPC, PID and network namespaces. A line on standard input says that
# the node's end of the cable is in its network namespace.
set -eu
folder=$1
read -r _
exec </dev/null
hostname "$2"
mount -a -T "$folder/fstab"
ip -batch "$folder/ip"
cd "$folder/root"
pivot_root . .
umount -l .
exec chroot . /bin/sh -c '
    # As a booting machine does: what stands in sysctl.d is applied. The keys that the lab keeps read-only are refused, which is wanted.
    sysctl -q --system >/dev/null 2>&1 || :
    /usr/sbin/sshd -D -E /var/log/sshd.log &
    for start in /usr/local/lib/sdlab/boot.d/*; do [ -x "$start" ] && "$start" & done
    while :; do sleep 2147483647 & wait $!; done
'
