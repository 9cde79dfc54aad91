#!/usr/bin/env bash
# Runs MAD's benchmark inside its container: benchmark.sh SETUP FOLDER... -- OPTION...
#
# The checkout is mounted read-only and worked on as a copy, so that no report of an earlier run is read for this one's.
set -u
setup=$1
shift
logs=$(cd "$(dirname "$0")" && pwd)/logs
trap 'chown -R --reference="${logs%/logs}" "$logs" 2>/dev/null' EXIT
mkdir -p "$logs"

work=$(mktemp -d) || exit 1
cp -R /mad/. "$work" || exit 1
found=
while [[ $1 != -- ]]; do
    [[ -n $found || ! -f $work/$1/pytorch_benchmark_report.sh ]] || found=$work/$1
    shift
done
shift
[[ -n $found ]] || { echo "error: the checkout has no pytorch_benchmark_report.sh" >&2; exit 1; }
cd "$found" || exit 1
rm -f "$found"/../perf_*.csv

if [[ $setup == 1 ]]; then
    bash ./pytorch_benchmark_setup.sh || { echo "error: pytorch_benchmark_setup.sh failed" >&2; exit 1; }
fi
bash ./pytorch_benchmark_report.sh "$@"
code=$?
shopt -s nullglob
reports=("$found"/../perf_*.csv)
((${#reports[@]} == 0)) || cat "${reports[@]}" >"$logs/perf.csv"
exit "$code"
