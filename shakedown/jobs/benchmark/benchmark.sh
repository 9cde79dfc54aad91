#!/usr/bin/env bash
# Runs MAD's benchmark inside its container: benchmark.sh MODEL FOLDER... -- OPTION...
#
# MODEL is what the setup is run for, empty for none; setup.txt beside this file says what it has to leave.
# The checkout is mounted read-only and worked on as a copy, so that no report of an earlier run is read for this one's.
set -u
model=$1
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

# Of what the document's setup leaves, that which this commit's setup names has to be there afterwards: newer images
# bring some of it themselves. A library that Python does not know is missing, another version than the document's is
# named in the log. A model or a data set is a folder of its name, as Hugging Face's cache or a download of its own calls it.
verify() {
    local kind name version found lacking=()
    while read -r kind name version; do
        grep -qiF -- "${name##*/}" pytorch_benchmark_setup.sh || continue
        if [[ $kind == library ]]; then
            found=$(cd / && python3 -c 'import sys; from importlib.metadata import version; print(version(sys.argv[1]))' "$name" 2>&1) \
                || { lacking+=("$kind $name"); continue; }
            [[ -z $version || $found == "$version" ]] || echo "setup: $name is $found, documented is $version"
        else
            found=$(find "${HF_HOME:-/workspace/huggingface}" "$HOME/.cache/huggingface" /workspace -maxdepth 7 -type d \
                \( -iname "*--${name//\//--}" -o -iname "${name##*/}" -o -iname "${name//\//___}" \) -not -empty -print -quit 2>/dev/null)
            [[ -n $found ]] || lacking+=("$kind $name")
        fi
    done <"$1"
    ((${#lacking[@]} == 0)) || { printf 'error: pytorch_benchmark_setup.sh left no %s\n' "${lacking[@]}" >&2; return 1; }
}

if [[ -n $model ]]; then
    only=()  # newer scripts take the model, and set all up without one
    ! grep -qE -- '^[[:space:]]*-m\)' pytorch_benchmark_setup.sh || only=(-m "$model")
    bash ./pytorch_benchmark_setup.sh "${only[@]}" || { echo "error: pytorch_benchmark_setup.sh failed" >&2; exit 1; }
    verify "${logs%/logs}/setup.txt" || exit 1
fi
bash ./pytorch_benchmark_report.sh "$@"
code=$?
shopt -s nullglob
reports=("$found"/../perf_*.csv)
((${#reports[@]} == 0)) || cat "${reports[@]}" >"$logs/perf.csv"
exit "$code"
