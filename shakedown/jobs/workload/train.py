"""Train a small Megatron-Core GPT on mock data: torchrun [...] train.py [--tensor-parallel N] [...].

Data, tensor and pipeline parallelism are Megatron's own. The last global rank prints Megatron's iteration lines.
Exit codes of a rank: 0 all iterations done, 1 an exception (its traceback on standard error), 2 unusable arguments.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import types
from datetime import timedelta
from pathlib import Path

if not __package__:  # run by its path: this folder is then no package yet, whatever its name on the node is
    sys.modules["workload"] = types.ModuleType("workload")
    sys.modules["workload"].__path__ = [str(Path(__file__).resolve().parent)]
    __package__ = "workload"

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from . import cpu, hang
from .arguments import Arguments, parser


def choose_device() -> torch.device:
    """Return this local rank's GPU; the CPU where torch sees no GPU at all."""
    if not torch.cuda.is_available():
        cpu.install()
        return torch.device("cpu")
    local_rank, devices = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local_rank >= devices:
        raise RuntimeError(f"local rank {local_rank} has no GPU: this node shows {devices}")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


@record
def run(arguments: Arguments) -> None:
    """Join the job, train, leave it. `record` hands an exception to torchrun, which names the rank that was first."""
    device = choose_device()
    # Megatron's tensor parallelism relies on one queue for the order of its kernels on GPUs before Blackwell.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    gpu, timeout = device.type == "cuda", timedelta(minutes=arguments.distributed_timeout_minutes)
    dist.init_process_group("nccl" if gpu else "gloo", timeout=timeout, device_id=device if gpu else None)
    from megatron.core import parallel_state

    from .trainer import train

    parallel_state.initialize_model_parallel(
        arguments.tensor_parallel, arguments.pipeline_parallel, create_gloo_process_groups=False
    )
    train(arguments, device)
    dist.destroy_process_group()


def main() -> int:
    """Train, and return the exit code."""
    # A rank that waits in a collective sits in C++, where Python's own handler would never get its turn.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    hang.listen()
    arguments = Arguments(**vars(parser().parse_args()))
    if errors := arguments.errors(int(os.environ.get("WORLD_SIZE", "1"))):
        # Every rank says so: torchrun ends the others as soon as one is gone.
        sys.stderr.write("".join(f"train.py: error: {error}\n" for error in errors))
        return 2
    try:
        run(arguments)
    except Exception:
        traceback.print_exc()
        hang.keep_failed()
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit(): gloo's threads can abort while Python tears down, and a rank that failed must not wait for peers.
    os._exit(code)
