"""Runs and archives that a site has signed, and what somebody may do to them afterwards."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from shakedown.runs.directory import STATEMENT, RunDirectory
from shakedown.runs.signing import envelope, statement
from tests.archives import a_run

NAMES = ["node01", "node02"]


def keys(folder: Path, name: str = "site") -> tuple[Path, Path]:
    """A pair of a site, private and public, as docs/evidence.md has it made."""
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    private.chmod(0o600)
    return private, public


def sign(directory: RunDirectory, key: Path, inventory: Path | None = None) -> RunDirectory:
    """Sign a run as the controller does at its end."""
    record = directory.load()
    states = [(node.name, directory.load_state(node.name)) for node in record.nodes]
    made = statement.of_run(directory, record, directory.load_evidence(), states, inventory)
    directory.write(STATEMENT, envelope.signed(made.payload(), envelope.private_key(key)).decode())
    return directory


def a_signed_run(root: Path, key: Path, log: str = "rocm.log", names: list[str] = NAMES) -> RunDirectory:
    """A signed run."""
    return sign(a_run(root, names, log), key)


def payload_of(file: Path) -> bytes:
    """The payload of a statement's file, whoever signed it."""
    return base64.b64decode(json.loads(file.read_bytes())["dsseEnvelope"]["payload"])


Alteration = Callable[[dict[str, bytes], random.Random], None]


def _bit(files: dict[str, bytes], dice: random.Random) -> None:
    name = dice.choice(sorted(name for name, data in files.items() if data))
    data = bytearray(files[name])
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    files[name] = bytes(data)


def _cut(files: dict[str, bytes], dice: random.Random) -> None:
    name = dice.choice(sorted(name for name, data in files.items() if data))
    files[name] = files[name][: dice.randrange(len(files[name]))]


def _longer(files: dict[str, bytes], dice: random.Random) -> None:
    files[dice.choice(sorted(files))] += dice.choice([b"\0", b"\n", b" ", b"{}"])


def _swap(files: dict[str, bytes], dice: random.Random) -> None:
    one, other = dice.sample(sorted(files), 2)
    files[one], files[other] = files[other], files[one]


def _remove(files: dict[str, bytes], dice: random.Random) -> None:
    del files[dice.choice(sorted(files))]


def _add(files: dict[str, bytes], dice: random.Random) -> None:
    files[dice.choice(["new", "logs/new", "logs/node01/new", "states/node03.json", "x/y"])] = b"{}"


def _lines(files: dict[str, bytes], dice: random.Random) -> None:
    """Bytes in another order."""
    name = dice.choice(sorted(name for name, data in files.items() if len(set(data)) > 1))
    data = bytearray(files[name])
    while bytes(data) == files[name]:
        dice.shuffle(data)
    files[name] = bytes(data)


ALTERATIONS: tuple[Alteration, ...] = (_bit, _bit, _bit, _cut, _longer, _swap, _remove, _add, _lines)


def files_of(folder: Path) -> dict[str, bytes]:
    """Everything below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def lay(files: dict[str, bytes], folder: Path) -> Path:
    """A folder with these files."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def altered(files: dict[str, bytes], others: dict[str, bytes], seed: int, last: str) -> Iterator[dict[str, bytes]]:
    """Endlessly, the files after something was done to them. `others`: the same run later, signed too; `last`: the file
    of the statement. An old signature comes to new files, and a signature of somebody else to the same."""
    dice = random.Random(seed)
    while True:
        now = dict(files)
        if dice.random() < 0.1:
            now = (
                {**others, last: files[last]} if dice.random() < 0.5 else {**files, last: _resigned(files[last], dice)}
            )
        else:
            dice.choice(ALTERATIONS)(now, dice)
        if now != files:
            yield now


def _resigned(text: bytes, dice: random.Random) -> bytes:
    """A statement whose signature is another, of the right form."""
    document = json.loads(text)
    signature = document["dsseEnvelope"]["signatures"][0]
    raw = base64.b64decode(signature["sig"])
    kind = dice.randrange(3)
    if kind == 0:  # the key of somebody else
        from cryptography.hazmat.primitives.asymmetric import ec

        own = ec.generate_private_key(ec.SECP256R1())
        return envelope.signed(base64.b64decode(document["dsseEnvelope"]["payload"]), own)
    if kind == 1:  # the same signature twice
        document["dsseEnvelope"]["signatures"] *= 2
    else:
        signature["sig"] = base64.b64encode(raw[:-1] + bytes([raw[-1] ^ 1 << dice.randrange(8)])).decode()
    return json.dumps(document, indent=1).encode() + b"\n"
