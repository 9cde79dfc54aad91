#!/usr/bin/env bash
# Runs ROCm/MAD's madengine in its checkout on the node: madengine.sh PROGRAM TAGS TIMEOUT
# Removes the containers that it started:                madengine.sh --remove
#
# madengine starts containers of its own. Each has the folder of this run in its environment, by which it is found: the
# node's other containers stay. The results go to the run's own perf.csv: the checkout's has those of earlier runs too.
set -u
folder=$(cd "$(dirname "$0")/.." && pwd) || exit 1
variable=SHAKEDOWN_FOLDER

containers() {
    local id
    for id in $(docker ps --all --quiet --no-trunc); do
        ! docker inspect --format '{{range .Config.Env}}{{println .}}{{end}}' "$id" 2>/dev/null \
            | grep -qxF -- "$variable=$folder" || echo "$id"
    done
}

remove() {
    local id
    command -v docker >/dev/null || return 0
    for id in $(containers); do docker rm --force "$id" >/dev/null; done
    [[ -z $(containers) ]] || { echo "error: a container of madengine is still there" >&2; return 1; }
}

if [[ $1 == --remove ]]; then
    remove
    exit
fi
program=$1 tags=$2 limit=$3
mkdir -p "$folder/logs" || exit 1
# madengine writes the value of MAD_SECRETS_* onto docker's command line and into its log (core/context.py and
# core/docker.py at ef87d05). So the token is kept from it, and a docker in front of docker names the variable alone.
if [[ -n ${MAD_SECRETS_HFTOKEN-} ]]; then
    docker=$(command -v docker) || exit 1
    export SHAKEDOWN_HF_TOKEN=$MAD_SECRETS_HFTOKEN SHAKEDOWN_DOCKER=$docker
    unset MAD_SECRETS_HFTOKEN
    mkdir -p -m 700 "$folder/bin" || exit 1
    cat >"$folder/bin/docker" <<'END' || exit 1
#!/usr/bin/env bash
if [[ ${1-} == run ]]; then
    export MAD_SECRETS_HFTOKEN=$SHAKEDOWN_HF_TOKEN
    set -- run --env MAD_SECRETS_HFTOKEN "${@:2}"
fi
exec "$SHAKEDOWN_DOCKER" "$@"
END
    chmod 700 "$folder/bin/docker" || exit 1
    export PATH=$folder/bin:$PATH
fi
"$program" run --tags "$tags" --live-output --timeout "$limit" --output "$folder/logs/perf.csv" \
    --manifest-output "$folder/logs/build_manifest.json" \
    --additional-context "{\"docker_env_vars\": {\"$variable\": \"$folder\"}}"
code=$?
case $code in
0) ;;
1) echo "error: madengine ended with 1: it failed" >&2 ;;
2) echo "error: madengine ended with 2: the image could not be built" >&2 ;;
3) echo "error: madengine ended with 3: a model's run failed" >&2 ;;
4) echo "error: madengine ended with 4: it refused its arguments" >&2 ;;
*) echo "error: madengine ended with $code" >&2 ;;
esac
exit "$code"
