#!/usr/bin/env bash
# Runs a job inside its container: job.sh [--without-torchrun] [--copy FROM TO]... COMMAND [WORD...]
#
# Training scripts end with the exit code of their own summary, whatever became of the training. So torchrun's is kept
# in `torchrun.exit` beside this file, and decides. Options that a script has no variable for stand in `arguments`, one
# word a line, and are appended to torchrun's command line. What the plan decided stands in `environment` and holds for
# torchrun: scripts export values of their own over it (NCCL_IB_HCA=rdma0,... in train_llama3.sh at fd6f0d1).
set -u
SHAKEDOWN_FOLDER=$(cd "$(dirname "$0")" && pwd) || exit 1
export SHAKEDOWN_FOLDER

# What the container's root writes belongs to whoever owns the folder, or the node could not tidy up after the run.
trap 'chown -R --reference="$SHAKEDOWN_FOLDER" "$SHAKEDOWN_FOLDER" 2>/dev/null' EXIT

without_torchrun=
if [[ ${1-} == --without-torchrun ]]; then
    without_torchrun=yes
    shift
fi
while [[ ${1-} == --copy ]]; do
    cp --dereference --force -- "$2" "$3" || exit 1
    shift 3
done

torchrun() {
    local words=() code line
    if [[ -f $SHAKEDOWN_FOLDER/environment ]]; then
        while IFS= read -r line; do
            [[ $line != *=* ]] || export "${line?}"
        done <"$SHAKEDOWN_FOLDER/environment"
    fi
    [[ ! -f $SHAKEDOWN_FOLDER/arguments ]] || mapfile -t words <"$SHAKEDOWN_FOLDER/arguments"
    command torchrun "$@" ${words[@]+"${words[@]}"}
    code=$?
    echo "$code" >"$SHAKEDOWN_FOLDER/torchrun.exit"
    return "$code"
}
export -f torchrun

# What is in the image, for the gate image_versions: a line for each component that answers within seconds.
versions() {
    local file rocm=rocm-sdk-core # of images in which ROCm is wheels, as rocm/primus from v26.4 on
    for file in /opt/rocm/core/.info/version /opt/rocm/.info/version; do
        [[ ! -r $file ]] || { echo "shakedown image: rocm $(head -c 40 "$file")" && rocm=read && break; }
    done
    timeout 20 python3 - "$rocm" <<'END' 2>/dev/null
import platform
import sys
from importlib import metadata

print("shakedown image: python", platform.python_version())
packages = {"rocm": sys.argv[1], "pytorch": "torch"}
for name in ("rocm", "pytorch", "transformer_engine", "flash_attn", "triton"):
    try:
        print("shakedown image:", name, metadata.version(packages.get(name, name)))
    except metadata.PackageNotFoundError:
        pass
END
}
versions >&2

mkdir -p "$SHAKEDOWN_FOLDER/logs"
"$@"
code=$?
shopt -s nullglob
traces=("$SHAKEDOWN_FOLDER"/logs/*.pt.trace.json*)
((${#traces[@]} == 0)) || tar -czf "$SHAKEDOWN_FOLDER/logs/traces.tar.gz" -C "$SHAKEDOWN_FOLDER/logs" "${traces[@]##*/}"
if [[ -f $SHAKEDOWN_FOLDER/torchrun.exit ]]; then
    code=$(<"$SHAKEDOWN_FOLDER/torchrun.exit")
elif ((code == 0)) && [[ -z $without_torchrun ]]; then
    echo "error: '$*' ended without having started torchrun" >&2
    code=1
fi
exit "$code"
