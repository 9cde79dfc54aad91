#!/bin/sh
# Validate idle nodes again, those first that passed a load longest ago. Run it once a day, from cron or scrontab:
#
#     revalidate.sh INVENTORY [HOSTS]     HOSTS as node[01-64]; without them, all nodes of the partition
#
# It submits a job for each chosen node, which any other job may take the node from. In slurm.conf:
#
#     PreemptType=preempt/partition_prio
#     PreemptMode=REQUEUE
#     PartitionName=main Nodes=... PriorityTier=10 Default=YES
#     PartitionName=idle Nodes=... PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
#
# A job that loses its node ends its load at once, within GraceTime. The verdict is then unknown, names no node and is no
# proof. Slurm starts the job again later, and the soak goes on where it ended. The jobs run `shakedown` on the node: the
# program, the inventory, $SHAKEDOWN_RUNS and $SHAKEDOWN_LEDGER have to be the same there.
#
# PARTITION (idle), AFTER (7d: not validated for so long), ONE_IN (20: one of so many nodes at a time), LENGTH (20m) and
# STAGES (all that apply) may be set in the environment.
set -eu
: "${PARTITION:=idle}" "${AFTER:=7d}" "${ONE_IN:=20}" "${LENGTH:=20m}" "${STAGES:=}"
NAME=shakedown-idle

if [ "${1:-}" = --job ]; then
    code=0
    # As a step: at the begin of the time of grace Slurm sends SIGTERM to steps, and none to this script.
    # shellcheck disable=SC2086
    srun --ntasks=1 --cpus-per-task="${SLURM_CPUS_ON_NODE:-1}" \
        shakedown soak "$2" --limit "$3" --for "$LENGTH" ${STAGES:+--only $STAGES} || code=$?
    case $code in
    130 | 143) exec timeout 60 scontrol requeue "$SLURM_JOB_ID" ;; # the node goes to the other job at once
    esac
    exit "$code"
fi

inventory=${1:?usage: revalidate.sh INVENTORY [HOSTS]}
hosts=${2:-$(timeout 60 sinfo --noheader --partition="$PARTITION" --format=%N)}
hosts=$(timeout 60 scontrol show hostnames "$hosts")
# What waits or runs already counts as chosen: a second call on the same day submits nothing more.
if [ -n "$(timeout 60 squeue --noheader --name="$NAME" --format=%A)" ]; then
    echo "$NAME: jobs of an earlier call are still there: nothing submitted"
    exit 0
fi
# shellcheck disable=SC2086
nodes=$(shakedown ledger stale $hosts --after "$AFTER" --one-in "$ONE_IN") # not in a pipe, which would hide its failure
[ -n "$nodes" ] || exit 0
printf '%s\n' "$nodes" | while read -r node _; do
    timeout 60 sbatch --parsable --job-name="$NAME" --partition="$PARTITION" --nodelist="$node" --nodes=1 --exclusive \
        --requeue --export=ALL "$0" --job "$inventory" "$node" </dev/null
done
