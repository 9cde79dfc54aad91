#!/bin/sh
# Slurm's Prolog: keep a job off a node whose agent's last verdict is "fail". In slurm.conf:
#
#     Prolog=/usr/local/libexec/shakedown-prolog
#
# A Prolog that fails drains its node and sends the job back into the queue, so this one only reads a verdict: it takes
# milliseconds. A drifted node and an unknown verdict let the job begin.
health=${SHAKEDOWN_HEALTH:-/usr/local/libexec/shakedown-health}
[ -x "$health" ] || health=/usr/libexec/shakedown-health  # where the deb puts it
words=$("$health" --fail)
[ $? -eq 1 ] || exit 0
echo "$words" >&2
exit 1
