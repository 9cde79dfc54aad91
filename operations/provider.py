"""The libibverbs provider of a NIC family on the host: the site's library in its place, and the file that names it."""

import hashlib
from pathlib import Path

from pyinfra.api import FunctionCommand, operation
from pyinfra.context import host

from shakedown.common.text import file_name
from shakedown.facts.files import Digests
from shakedown.facts.settings import Contents
from shakedown.operations import atomic
from shakedown.operations.commands import Commands, refuse, verify

KEPT = f"{atomic.FOLDER}/files"


@operation()
def library(source: str, path: str) -> Commands:
    """
    Put the site's provider library in its place. What is there is kept for rollback.

    + source: the library on the controller
    + path: its place on the node, under the name that libibverbs loads: ``lib<provider>-rdmav<abi>.so``

    **Example:**

    .. code:: python

        from shakedown.operations import provider
        provider.library(
            name="The provider of the NIC's firmware",
            source="files/libbnxt_re-rdmav34.so",
            path="/usr/local/lib/libbnxt_re-rdmav34.so",
        )
    """
    if problem := _unfit(Path(source)):
        yield refuse(problem)
        return
    wanted = hashlib.sha256(Path(source).read_bytes()).hexdigest()
    there = host.get_fact(Digests, paths=[path])
    if there.get(path) == wanted:
        host.noop(f"{path} is {source} already (sha256 {wanted[:12]})")
        return
    yield from _keep("provider.library", path, path in there)
    yield FunctionCommand(atomic.placed, (source, path), {})

    def wrong() -> str | None:
        now = host.get_fact(Digests, paths=[path]).get(path, "nothing")
        return None if now == wanted else f"{path} has sha256 {now} after the upload of {wanted}"

    yield verify(wrong)


@operation()
def driver(provider: str, folder: str = "/etc/libibverbs.d") -> Commands:
    """
    Have libibverbs look for a provider.

    + provider: its name, as in ``lib<provider>-rdmav<abi>.so``
    + folder: where libibverbs reads its configuration

    **Example:**

    .. code:: python

        from shakedown.operations import provider
        provider.driver(name="libibverbs knows bnxt_re", provider="bnxt_re")
    """
    path = f"{folder}/{provider}.driver"
    wanted = f"driver {provider}"
    files = host.get_fact(Contents, patterns=[path])
    if wanted in [line.strip() for line in files.get(path) or []]:
        host.noop(f"{path} names {provider}")
        return
    yield from _keep("provider.driver", path, path in files)
    yield atomic.write(path, [atomic.HEADER, wanted])

    def wrong() -> str | None:
        now = host.get_fact(Contents, patterns=[path]).get(path) or []
        return None if wanted in now else f"{path} does not name {provider} after writing it"

    yield verify(wrong)


def _keep(setting: str, path: str, exists: bool) -> Commands:
    """Before the first change: note what stood there, and keep it as it is, links as links."""
    kept = f"{KEPT}/{file_name(path.strip('/'))}"
    if exists:
        yield atomic.command("keep", path=path, kept=kept)
    step = atomic.Step("kept", path, kept) if exists else atomic.Step("created", path)
    yield atomic.remember(f"{setting}.{path.strip('/')}", [step])


def _unfit(source: Path) -> str | None:
    """Return why a file of the controller is no library for a node, if it is none."""
    try:
        with source.open("rb") as handle:
            head = handle.read(64)
    except OSError as error:
        return f"{source} cannot be read on the controller: {error.strerror}"
    right = head.startswith(b"\x7fELF\x02\x01") and head[18:20] == b"\x3e\x00"  # 64-bit, little-endian; the machine
    return None if right else f"{source} is no x86-64 library (ELF)"
