#!/bin/sh
# Slurm's HealthCheckProgram: drain this node when its agent's last verdict is "fail". In slurm.conf:
#
#     HealthCheckProgram=/usr/local/libexec/shakedown-healthcheck
#     HealthCheckInterval=300
#     HealthCheckNodeState=ANY,CYCLE
#
# Slurm runs it on all nodes, as root, and kills it after 60 s. It checks nothing itself: it reads the agent's verdict.
# A drifted node and an unknown verdict drain nothing. It never resumes a node, and leaves a node that another drain or
# reason holds. `shakedown service` brings a node back after a load has cleared it.
PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
health=${SHAKEDOWN_HEALTH:-/usr/local/libexec/shakedown-health}
[ -x "$health" ] || health=/usr/libexec/shakedown-health  # where the deb puts it
node=${SLURMD_NODENAME:-$(hostname -s)}

words=$("$health" --fail)
[ $? -eq 1 ] || exit 0
# Without an answer of the controller nothing is known of other drains.
now=$(timeout 20 scontrol --oneliner show node "$node") || exit 0
case $now in
*State=*DRAIN*" "* | *" Reason="*) exit 0 ;;
esac
# Characters by which clients parse Slurm's output become "_".
reason=$(printf '%s' "$words" | LC_ALL=C tr -c 'A-Za-z0-9 ._:/%+<>-' '_')
timeout 20 scontrol update "nodename=$node" state=drain "reason=$reason" || exit 0
