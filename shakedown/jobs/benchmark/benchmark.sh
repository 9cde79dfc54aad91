#!/usr/bin/env bash
# Runs MAD's benchmark inside its container: benchmark.sh SETUP OPTION...
#
# SETUP is 1 where the setup is to be run first; setup/MODEL.txt beside this file says what it has to leave.
# The checkout is mounted read-only and worked on as a copy, so that no report of an earlier run is read for this one's.
set -u
here=$(cd "$(dirname "$0")" && pwd)
logs=${SHAKEDOWN_FOLDER:?}/logs
unset -f torchrun # of job.sh: the scripts may start several, and their own exit code decides
setup=$1
shift
model=
for ((at = 1; at < $#; at++)); do
    [[ ${!at} != -m ]] || { next=$((at + 1)) && model=${!next}; }
done

work=$(mktemp -d) || exit 1
cp -R /mad/. "$work" || exit 1
found=
for folder in scripts/pytorch-train scripts/pytorch_train; do # the document's, and what it was renamed to
    [[ -n $found || ! -f $work/$folder/pytorch_benchmark_report.sh ]] || found=$work/$folder
done
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

if [[ $setup == 1 ]]; then
    only=()  # newer scripts take the model, and set all up without one
    ! grep -qE -- '^[[:space:]]*-m\)' pytorch_benchmark_setup.sh || only=(-m "$model")
    bash ./pytorch_benchmark_setup.sh "${only[@]}" || { echo "error: pytorch_benchmark_setup.sh failed" >&2; exit 1; }
    verify "$here/setup/$model.txt" || exit 1
fi
bash ./pytorch_benchmark_report.sh "$@"
code=$?
shopt -s nullglob
reports=("$found"/../perf_*.csv)
((${#reports[@]} == 0)) || cat "${reports[@]}" >"$logs/perf.csv"
exit "$code"
