"""
Data sets: files downloaded whole, and data that a program in an image prepares.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, QuoteString, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from facts.dataset import Downloaded, Prepared
from operations.commands import DATA_S, Commands, refuse, verify
from operations.scripts import run_script
from shakedown.smoke.launch import CONTAINER_LABEL

ADVICE = {
    "space": "make room, or name another folder; nothing was downloaded for nothing: what is there is gone on with",
    "other": "the server has another file than the one asked for: correct size or sha256, or look who changed it",
    "refused": "look at the URL, and whether it needs a login",
    "transport": "the connection broke again and again; another run goes on where this one ended",
    "busy": "wait for it, or end it",
    "folder": "look at the folder and its owner",
}
MARK = ".shakedown-prepared"


@operation()
def download(
    files: list[dict[str, Any]],
    folder: str,
    tries: int = 5,
    stall_s: int = 60,
    timeout_s: int = 86400,
    room_bytes: int = 1 << 30,
) -> Commands:
    """
    Have files in a folder: whole, checked, or not at all. A download that was cut is gone on with, a file that is
    there and is another one is never overwritten. Nodes that share the folder download once.

    + files: ``url``, and ``sha256`` and ``size`` (bytes) where they are known; without them the size is the server's,
      and the checksum that was found is told and recorded
    + folder: on the node
    + tries: in a row without getting further
    + stall_s: seconds without a byte that count as a broken connection
    + timeout_s: seconds to wait for another node that is at work in the folder
    + room_bytes: to be left free on the file system

    The way back is to remove the files.

    **Example:**

    .. code:: python

        from operations import dataset
        dataset.download(
            name="The index",
            files=[{"url": "https://example.org/text_document.idx", "sha256": "9f86d081884c7d65..."}],
            folder="/data/deepseek",
        )
    """
    wanted = [{**file, "name": unquote(urlsplit(file["url"]).path).rpartition("/")[2]} for file in files]
    names = [file["name"] for file in wanted]
    bad = [name for name in names if not name or name.startswith(".") or names.count(name) > 1]
    if bad:
        yield refuse(f"no name of a file, or one that two URLs end in: {', '.join(sorted(set(bad))) or 'none'}")
        return
    if not _lacking(folder, wanted):
        host.noop(f"{folder} has {', '.join(names)}")
        return
    document = {
        "folder": folder,
        "files": wanted,
        "tries": tries,
        "stall_s": stall_s,
        "timeout_s": timeout_s,
        "room_bytes": room_bytes,
    }
    yield FunctionCommand(_download, (document,), {})

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
    done, output = run_script(host, "download.py", document, show=True, limit_s=DATA_S)
    if not done:
        kind, _, words = (output.stderr_lines[-1] if output.stderr_lines else "").partition(": ")
        told = f"{words}: {ADVICE[kind]}" if kind in ADVICE else " ".join(output.stderr_lines)[-500:]
        host.log_styled(f"{document['folder']}: {told}", fg="red", log_func=logger.error)
    return done


@operation()
def prepare(
    image: str,
    command: list[str],
    folder: str,
    workdir: str,
    variables: dict[str, str],
    engine: str = "docker",
    run_id: str = "dataset",
) -> Commands:
    """
    Have the data that a program in an image downloads and prepares. It works beside the folder, which gets its name
    when the program has ended well and left a Megatron index with its data.

    + image: with the program; there already
    + command: the program, which writes below ``/data``
    + folder: on the node; absent or empty
    + workdir: in the image
    + variables: the program's environment
    + engine: ``docker`` or ``podman``
    + run_id: the value of our label on the container

    The way back is to remove the folder.

    **Example:**

    .. code:: python

        from operations import dataset
        dataset.prepare(
            name="bookcorpus",
            image="rocm/megatron-lm:v25.4",
            command=["bash", "examples/llama/prepare_dataset.sh"],
            workdir="/workspace/Megatron-LM",
            variables={"DATASET": "bookcorpus", "DATA_DIR": "/data"},
            folder="/data/bookcorpus",
        )
    """
    stands = host.get_fact(Prepared, folder=folder, mark=MARK)
    if stands == "prepared":
        host.noop(f"{folder} is prepared")
        return
    if stands != "absent":
        yield refuse(f"{folder} is there and was not prepared from here: name it as it is, or another folder")
        return
    bad = [name for name in variables if not re.fullmatch(r"[A-Za-z_]\w*", name)]
    if bad:
        yield refuse(f"no names of variables: {', '.join(bad)}")
        return
    part = QuoteString(f"{folder}.part")
    given = [word for name, value in variables.items() for word in ("--env", QuoteString(f"{name}={value}"))]
    yield StringCommand("rm -rf", part, "&& mkdir -p", part)
    yield StringCommand(
        engine, "run --rm --pull never --network host --entrypoint=", "--label", f"{CONTAINER_LABEL}={run_id}", *given,
        "--volume", QuoteString(f"{folder}.part:/data"), "--workdir", QuoteString(workdir), QuoteString(image),
        *(QuoteString(word) for word in command), _timeout=DATA_S,
    )  # fmt: skip
    # Megatron's indexed data begins with this, so that a page of a proxy or an empty file is no data set.
    yield StringCommand(
        "i=$(find", part, "-name '*.idx' -size +0 | head -n 1); b=${i%.idx}.bin;",
        '[ -n "$i" ] && [ -s "$b" ] && [ "$(head -c 7 "$i")" = MMIDIDX ] ||',
        "{ echo 'the program left no Megatron index with its data' >&2; exit 1; }",
    )  # fmt: skip
    where = QuoteString(folder)
    yield StringCommand("[ ! -d", where, "] || rmdir", where, "; touch", QuoteString(f"{folder}.part/{MARK}"))
    yield StringCommand("mv -T", part, where)

    def wrong() -> str | None:
        now = host.get_fact(Prepared, folder=folder, mark=MARK)
        return None if now == "prepared" else f"{folder} is {now} after preparing it"

    yield verify(wrong)
