#!/usr/bin/env bash
# A stand-in for examples/llama/train_llama3.sh of ROCm/Megatron-LM, for images and machines without Llama: it takes
# the same variables from the environment, and trains the small GPT of train.py, for real.
#
#   MODEL_SIZE=8 TP=1 PP=1 MBS=1 BS=8 SEQ_LENGTH=128 TOTAL_ITERS=12 GPUS_PER_NODE=2 bash train_llama.sh
#
# Other than in the original:
#   MODEL_SIZE     is checked (7, 8, 13 or 70) and sizes nothing
#   TP             defaults to 1, SEQ_LENGTH to 128
#   GPUS_PER_NODE  defaults to the number of GPUs that torch sees, or to 1 without any
#   TE_FP8, RECOMPUTE, GEMM_TUNING  have no effect, which is said when they are 1; CP and FSDP above 1 and 0 are refused
# The log is ${LOG_DIR}/output_${EXP_NAME}.log, and with TEE_OUTPUT=1 standard output too. The exit code is torchrun's,
# or 2 where a variable is refused here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TP=${TP:-1} PP=${PP:-1} CP=${CP:-1} MBS=${MBS:-1} BS=${BS:-8}
MODEL_SIZE=${MODEL_SIZE:-70} SEQ_LENGTH=${SEQ_LENGTH:-128} TOTAL_ITERS=${TOTAL_ITERS:-12}
MASTER_ADDR=${MASTER_ADDR:-localhost} MASTER_PORT=${MASTER_PORT:-6000} NNODES=${NNODES:-1} NODE_RANK=${NODE_RANK:-0}
TE_FP8=${TE_FP8:-0} FSDP=${FSDP:-0} RECOMPUTE=${RECOMPUTE:-0} GEMM_TUNING=${GEMM_TUNING:-0}
TEE_OUTPUT=${TEE_OUTPUT:-1} LOG_DIR=${LOG_DIR:-experiment/stand-in} EXP_NAME=${EXP_NAME:-perf}
GPUS_PER_NODE=${GPUS_PER_NODE:-$(python3 -c 'import torch; print(torch.cuda.device_count() or 1)')}

wrong=0
refuse() {
    echo "error: $*" >&2
    wrong=1
}
for name in TP PP CP MBS BS SEQ_LENGTH TOTAL_ITERS MASTER_PORT NNODES GPUS_PER_NODE; do
    [[ ${!name} =~ ^[1-9][0-9]*$ ]] || refuse "$name='${!name}' is not a number above 0"
done
[[ $NODE_RANK =~ ^[0-9]+$ ]] || refuse "NODE_RANK='$NODE_RANK' is not a number"
[[ $MODEL_SIZE =~ ^(7|8|13|70)$ ]] || refuse "MODEL_SIZE='$MODEL_SIZE' is none of 7, 8, 13, 70"
[[ $CP == 1 ]] || refuse "CP=$CP: the stand-in has no context parallelism"
[[ $FSDP == 0 ]] || refuse "FSDP=$FSDP: the stand-in has no FSDP"
for name in TE_FP8 RECOMPUTE GEMM_TUNING TEE_OUTPUT; do
    [[ ${!name} =~ ^[01]$ ]] || refuse "$name='${!name}' is neither 0 nor 1"
done
((wrong == 0)) || exit 2

mkdir -p "$LOG_DIR"
log=$LOG_DIR/output_$EXP_NAME.log
tee_pid=
if [[ $TEE_OUTPUT == 1 ]]; then
    exec > >(trap '' INT TERM && exec tee "$log") 2>&1 # tee outlives the signal, so that the last lines are kept
    tee_pid=$!
else
    exec >"$log" 2>&1
fi
echo "stand-in for train_llama3.sh: a small GPT is trained here, not Llama; MODEL_SIZE=$MODEL_SIZE sizes nothing"
for name in TE_FP8 RECOMPUTE GEMM_TUNING; do
    [[ ${!name} == 0 ]] || echo "$name=1 is ignored by the stand-in"
done

# torchrun leaves a folder in the temporary one after every run.
TMPDIR=$(mktemp -d)
trap 'rm -rf "$TMPDIR"' EXIT
export TMPDIR CUDA_DEVICE_MAX_CONNECTIONS=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
torchrun --nnodes "$NNODES" --node-rank "$NODE_RANK" --nproc-per-node "$GPUS_PER_NODE" \
    --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" "$here/train.py" \
    --tensor-parallel "$TP" --pipeline-parallel "$PP" --micro-batch-size "$MBS" --global-batch-size "$BS" \
    --seq-length "$SEQ_LENGTH" --train-iters "$TOTAL_ITERS" &
job=$!
# A container's stop reaches this shell alone.
trap 'kill -TERM "$job" 2>/dev/null || true' INT TERM
status=0
wait "$job" || status=$?
while kill -0 "$job" 2>/dev/null; do # a trapped signal ends the wait early
    wait "$job" || status=$?
done
if [[ -n $tee_pid ]]; then
    exec >&- 2>&-
    wait "$tee_pid" || true
fi
exit "$status"
