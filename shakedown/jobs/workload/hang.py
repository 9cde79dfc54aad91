"""What this rank records when the job hangs: the flight record of its collectives, and where its threads are.

The launcher asks with SIGUSR2. A rank that waits in a collective sits in C++, where Python's handlers never get their
turn, but the signal's number is written to a pipe at once, and a thread reads that. SIGUSR1 has faulthandler write the
stacks, even of a rank that holds Python's lock. Both go to `hang/` of the run folder; a job that was not started by the
launcher has none, and nothing is done.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

KEPT = 200  # of the newest collectives: 57 kB for 500 of them
_FOLDER = Path(__file__).resolve().parents[1] / "hang"
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def listen(folder: Path | None = None) -> None:
    """Have a thread wait for the launcher's question. To be called by the main thread."""
    folder = folder or _FOLDER
    if not folder.is_dir():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGUSR2, lambda _number, _frame: None)
    signal.siginterrupt(signal.SIGUSR2, False)
    threading.Thread(target=_answer, args=(folder, reader), daemon=True).start()
    name = f"stacks-{os.getpid()}-{os.environ.get('RANK', '0')}.txt"  # the launcher looks for it, and learns the rank
    stacks = os.open(folder / name, _WRITE | os.O_APPEND, 0o600)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)


def keep_failed() -> None:
    """Write the record of a rank that is about to end with an exception. Of ranks that came to a collective with
    different sizes, gloo ends one at once; what the others have seen says which of them differed."""
    if _FOLDER.is_dir():
        _write_record(_FOLDER / f"failed-{os.getpid()}.json")


def _answer(folder: Path, reader: int) -> None:
    while numbers := os.read(reader, 100):
        if signal.SIGUSR2 in numbers:
            _write_record(folder / f"flight-{os.getpid()}.json")


def _write_record(name: Path) -> None:
    try:
        text = json.dumps(_record())
    except Exception as error:  # whatever is wrong with it, the job goes on
        text = json.dumps({"error": f"{type(error).__name__}: {error}"})
    partial = name.with_suffix(".partial")
    with suppress(OSError):  # a full disk
        with os.fdopen(os.open(partial, _WRITE | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        partial.replace(name)


def _record() -> dict[str, Any]:
    """Return the newest collectives from PyTorch's flight recorder, without stacks: those cost seconds at first."""
    from torch._C import _distributed_c10d as c10d
    from torch.distributed import distributed_c10d

    flight = json.loads(c10d._dump_fr_trace_json(True, False))  # type: ignore[attr-defined]
    flight["entries"] = flight.get("entries", [])[-KEPT:]
    known = list(distributed_c10d._world.pg_group_ranks.items())
    groups = [(getattr(group, "group_name", ""), ranks) for group, ranks in known]
    return {
        "rank": int(os.environ.get("RANK", "0")),
        "world_size": int(os.environ.get("WORLD_SIZE", "1")),
        "groups": {name: sorted(ranks) for name, ranks in groups if name},  # a number stands for one of others
        "flight": flight,
    }
