"""Data sets: files downloaded whole, and data that a program in an image prepares."""

import re
from typing import Any
from urllib.parse import unquote, urlsplit

from pyinfra.api import FunctionCommand, Host, State, operation
from pyinfra.context import host

from shakedown.common.data import read_toml
from shakedown.common.text import printable
from shakedown.facts.dataset import Downloaded, Prepared
from shakedown.jobs.launch import CONTAINER_LABEL
from shakedown.operations.atomic import last_words, run_script
from shakedown.operations.commands import DATA_S, Commands, refuse, refused, verify

SLACK_S = 300  # over the scripts' own limit, at which they end and clean up
ADVICE: dict[str, str] = read_toml("shakedown.operations", "advice.toml")["data"]


@operation()
def download(
    files: list[dict[str, Any]],
    folder: str,
    tries: int = 5,
    stall_s: int = 60,
    timeout_s: int = DATA_S,
    room_bytes: int = 1 << 30,
) -> Commands:
    """
    Have files in a folder: whole, checked, or not at all. A download that was cut is continued, a file that is
    there and is another one is never overwritten. Of nodes that share the folder one downloads; the others wait, and
    read what it has left. The folder may be another user's: no link in it is followed, and what was checked is recorded
    in /var/lib/shakedown, or in the user's own state folder. Files of root's stay root's there, for all to read.

    + files: ``url``, and ``sha256`` and ``size`` (bytes) where they are known; without them the size is the server's,
      and the checksum that was found is shown and recorded
    + folder: on the node
    + tries: in a row without getting further
    + stall_s: seconds without a byte that count as a broken connection
    + timeout_s: seconds for all of it, waiting for another node included
    + room_bytes: to be left free on the file system

    The way back is to remove the files.

    **Example:**

    .. code:: python

        from shakedown.operations import dataset
        dataset.download(
            name="The index",
            files=[{"url": "https://example.org/text_document.idx", "sha256": "9f86d081884c7d65..."}],
            folder="/data/deepseek",
        )
    """
    wanted = [{**file, "name": unquote(urlsplit(file["url"]).path).rpartition("/")[2]} for file in files]
    names = [file["name"] for file in wanted]
    bad = [name for name in names if name[:1] in ("", ".") or not name.isprintable() or names.count(name) > 1]
    if bad:
        shown = printable(", ".join(sorted(set(bad)))) or "none"
        yield refuse(f"no name of a file, or one that two URLs end in: {shown}")
        return
    if not _lacking(folder, wanted):
        host.noop(f"{folder} has {', '.join(names)}")
        return
    limits = {"tries": tries, "stall_s": stall_s, "timeout_s": timeout_s, "room_bytes": room_bytes}
    yield FunctionCommand(_download, ({"folder": folder, "files": wanted, **limits},), {})

    def wrong() -> str | None:
        lacking = _lacking(folder, wanted)
        return f"{folder}: not there after the download: {', '.join(lacking)}" if lacking else None

    yield verify(wrong)


def _lacking(folder: str, wanted: list[dict[str, Any]]) -> list[str]:
    found = host.get_fact(Downloaded, folder=folder, names=[file["name"] for file in wanted])
    return [
        file["name"]
        for file in wanted
        if file["name"] not in found
        or any(file.get(key) not in (None, found[file["name"]][key]) for key in ("size", "sha256"))
    ]


def _download(state: State, host: Host, document: dict[str, Any]) -> bool:
    done, output = run_script(host, "download.py", document, show=True, limit_s=document["timeout_s"] + SLACK_S)
    if done:
        return True
    kind, _, words = (output.stderr_lines[-1] if output.stderr_lines else "").partition(": ")
    message = printable(words if kind in ADVICE else " ".join(output.stderr_lines)[-500:])
    advice = f": {ADVICE[kind]}" if kind in ADVICE else ""
    return refused(state, host, f"{document['folder']}: {message}{advice}")


@operation()
def prepare(
    image: str,
    command: list[str],
    folder: str,
    workdir: str,
    variables: dict[str, str],
    engine: str = "docker",
    run_id: str = "dataset",
    timeout_s: int = DATA_S,
) -> Commands:
    """
    Have the data that a program in an image downloads and prepares. It works beside the folder, which gets its name
    when the program has succeeded and left a Megatron index with its data. Of nodes that share the folder one is at
    work, and the others wait for it.

    The engine takes the path by its name, as root, so the folder above has to be one in which only root, or the
    user who connects, can write.

    + image: with the program; there already
    + command: the program, which writes below ``/data``
    + folder: on the node; absent or empty
    + workdir: in the image
    + variables: the program's environment
    + engine: ``docker`` or ``podman``
    + run_id: the value of the run label on the container
    + timeout_s: seconds for all of it, waiting for another node included

    The way back is to remove the folder.

    **Example:**

    .. code:: python

        from shakedown.operations import dataset
        dataset.prepare(
            name="bookcorpus",
            image="rocm/megatron-lm:v25.4",
            command=["bash", "examples/llama/prepare_dataset.sh"],
            workdir="/workspace/Megatron-LM",
            variables={"DATASET": "bookcorpus", "DATA_DIR": "/data"},
            folder="/data/bookcorpus",
        )
    """
    stands = host.get_fact(Prepared, folder=folder)
    bad = [name for name in variables if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)]
    if stands == "prepared":
        host.noop(f"{folder} is prepared")
        return
    if stands != "absent" or bad:
        words = printable(stands) if stands != "absent" else f"no names of variables: {', '.join(bad)}"
        yield refuse(f"{folder}: {words}")
        return
    document: dict[str, Any] = {"folder": folder, "image": image, "command": command, "workdir": workdir}
    document |= {"variables": variables, "engine": engine, "label": CONTAINER_LABEL, "run_id": run_id}
    document["timeout_s"] = timeout_s
    yield FunctionCommand(_prepare, (document,), {})
    yield verify(lambda: _unprepared(folder))


def _unprepared(folder: str) -> str | None:
    now = host.get_fact(Prepared, folder=folder)
    return None if now == "prepared" else f"{folder} after preparing it: {printable(now)}"


def _prepare(state: State, host: Host, document: dict[str, Any]) -> bool:
    limit_s = document["timeout_s"] + SLACK_S
    done, output = run_script(host, "prepare.py", document, show=state.print_output, limit_s=limit_s)
    return done or refused(state, host, f"{document['folder']}: {last_words(output)}")
