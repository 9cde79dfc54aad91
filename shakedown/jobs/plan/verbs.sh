#!/usr/bin/env bash
# Are the RDMA devices there inside the image? verbs.sh [--copy FROM TO]... DEVICE [DEVICE...]
#
# A provider library that is missing, or of another ABI than the image's libibverbs, makes no error: there are just no
# devices, and the job would fall back to TCP.
set -u
while [[ ${1-} == --copy ]]; do
    cp --dereference --force -- "$2" "$3" || exit 1
    shift 3
done
command -v ibv_devinfo >/dev/null || {
    echo "error: the image has no ibv_devinfo, so nothing shows that its libibverbs finds the devices" >&2
    exit 1
}
listed=$(ibv_devinfo -l 2>&1)
missing=()
for device in "$@"; do
    grep -qxE "[[:space:]]*$device[[:space:]]*" <<<"$listed" || missing+=("$device")
done
if ((${#missing[@]})); then
    echo "error: ibv_devinfo inside the image does not list ${missing[*]}; it says:" >&2
    echo "$listed" >&2
    exit 1
fi
