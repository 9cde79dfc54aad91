#!/bin/sh
# The nodes of the bench: one sshd per line "ADDRESS PORT" of $1/addresses, in a PID namespace for all of them and a
# mount namespace for each. What is written to /etc, /var/lib and root's home stays in memory and is gone with it.
set -eu
scratch=$1 sshd=$2 home=$3

if [ $# = 5 ]; then
    address=$4 port=$5
    for folder in /etc /var/lib; do
        layer=$scratch/memory/$address$folder
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
    # Of one kernel two nodes are told apart by their machine-ids and host keys (shakedown/checks/machines.py).
    printf '%s' "$address" | md5sum | cut -c 1-32 >/etc/machine-id
    cp "$scratch/keys/$address.pub" /etc/ssh/ssh_host_ed25519_key.pub
    # Nodes whose own work is not to be measured say what is written down for them.
    set --
    [ ! -e "$scratch/answer" ] || set -- -o ForceCommand="cat $scratch/answer"
    exec "$sshd" -D -e -f /dev/null -h "$scratch/keys/$address" -o UsePAM=no -o MaxStartups=100:30:200 \
        -o ListenAddress="$address:$port" -o AuthorizedKeysFile="$scratch/key.pub" -o StrictModes=no -o PidFile=none \
        -o PermitRootLogin=prohibit-password -o LogLevel=ERROR -o Subsystem="sftp internal-sftp" "$@"
fi

mkdir -p "$scratch/memory"
mount -t tmpfs tmpfs "$scratch/memory"
while read -r address port; do
    unshare --mount sh "$0" "$scratch" "$sshd" "$home" "$address" "$port" &
done <"$scratch/addresses"
# Until standard input ends, and with it this namespace: whatever becomes of the bench, nothing of it is left.
cat >/dev/null
