#!/bin/sh
# PID 1 of a container node for a moment: what firmware, boot loader and kernel leave behind on a machine. Then systemd.
set -eu
lab=/usr/local/lib/sdlab
# Its own files, kept over a boot as on a disk, in place of those that the engine binds over them.
umount /etc/hosts /etc/hostname /etc/resolv.conf
# As on a namespace node: sysctls outside net/ are the machine's, to be read; those of the node itself are new at each boot.
for part in /proc/sys/*; do
    [ "$part" = /proc/sys/net ] || mount -o bind,ro "$part" "$part"
done
mkdir -p /run/sdlab/proc/sys/kernel/random
cp -r "$lab/proc" /run/sdlab
cat /proc/sys/kernel/random/uuid >/run/sdlab/proc/sys/kernel/random/boot_id
(cd /run/sdlab/proc && find . -type f) | while read -r file; do
    [ ! -e "/proc/$file" ] || mount --bind "/run/sdlab/proc/$file" "/proc/$file"
done
# Control groups below the node's own, for systemd and for a container engine of the node.
for controller in /sys/fs/cgroup/*/; do
    mount -o remount,bind,rw "$controller"
done
ip -batch "$lab/ip"
exec /sbin/init
