#!/bin/sh
# The nodes of the bench: one sshd per line "ADDRESS PORT" of $1/addresses, in mount and PID namespaces of their own.
# What is written to /etc, /var/lib and root's home stays in memory and is gone with the namespace.
set -eu
scratch=$1 sshd=$2 home=$3

mkdir -p "$scratch/memory"
mount -t tmpfs tmpfs "$scratch/memory"
for folder in /etc /var/lib; do
    layer=$scratch/memory$folder
    mkdir -p "$layer/upper" "$layer/work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$layer/upper,workdir=$layer/work" "$folder"
done
# Nobody's start-up files: bash reads ~/.bashrc for every command over SSH.
mount -t tmpfs -o mode=0700 tmpfs "$home"
# No container engine and no systemd of the machine shows through; sshd wants its folder.
mount -t tmpfs tmpfs /run
mkdir -m 0755 /run/sshd
# Without PAM sshd refuses a user whose password is locked, key or no key.
sed -i 's/^root:!/root:*/' /etc/shadow

# Nodes whose own work is not to be measured say what is written down for them.
set --
[ ! -e "$scratch/answer" ] || set -- -o ForceCommand="cat $scratch/answer"

while read -r address port; do
    "$sshd" -D -e -f /dev/null -h "$scratch/host_key" -o UsePAM=no -o MaxStartups=100:30:200 \
        -o ListenAddress="$address:$port" -o AuthorizedKeysFile="$scratch/key.pub" -o StrictModes=no -o PidFile=none \
        -o PermitRootLogin=prohibit-password -o LogLevel=ERROR -o Subsystem="sftp internal-sftp" "$@" &
done <"$scratch/addresses"
# Until standard input ends, and with it this namespace: whatever becomes of the bench, nothing of it is left.
cat >/dev/null
