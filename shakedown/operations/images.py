"""
Container images, by digest. A tag is resolved once, and then every node pulls the same digest.

The first node that needs an image asks the registry for the digest and the size with a few lines of Python, and the
others use its answer. A node asks and not the controller, because only the nodes are known to reach the registry; and
not the engine, whose `manifest inspect` ignores the certificates and credentials it would pull with.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

from gevent.lock import RLock
from pyinfra import logger
from pyinfra.api.command import FunctionCommand, QuoteString, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from shakedown.desired.sizes import format_size
from shakedown.facts.images import ImageDigests
from shakedown.facts.settings import Contents
from shakedown.images import Reference, parse
from shakedown.operations import atomic
from shakedown.operations.commands import Commands, refuse, verify
from shakedown.operations.record import Step, remember
from shakedown.operations.scripts import run_script
from shakedown.secret_file import read_secret
from shakedown.text import load_json, printable

CERTIFICATES = "/etc/docker/certs.d"
UNPACKED = 3  # a training image's size on disk by its compressed size, rounded up; where `size_bytes` is not given
ASKING_TRIES = 3  # nodes that ask a registry in vain before the others stop asking

# What to do about each kind of failure that assets/pull.py and assets/registry.py tell apart.
ADVICE = {
    "plain": "the registry speaks http: set insecure=True on the image; docker also needs it in `insecure-registries`"
    " of /etc/docker/daemon.json, which this project does not edit",
    "certificate": "the registry's certificate is not trusted: name its authority as ca_file (or set insecure=True;"
    " docker then needs `insecure-registries` in /etc/docker/daemon.json, which this project does not edit)",
    "login": "the registry refuses: check username and password, and whether this user may pull the image",
    "unknown": "the registry has no such image: check name, tag and digest",
    "downgrade": "nothing was sent in clear: the registry must keep to https; for one without TLS set insecure=True",
    "digest": "what came is not what its digest says: a proxy changed it, or the registry is broken or not the one you"
    " think",
    "answer": "this is no answer of a registry: look at its address, and at what stands between",
    "space": "make room where the engine stores images; shakedown deletes nothing that is not its own",
    "engine": "the container engine itself failed: is it running, and may this user talk to it?",
    "time": "the pull was stopped because it took too long: raise timeout_s, or look at the network",
    "transport": "the connection to the registry broke, also when tried again",
}


@dataclass(frozen=True)
class _Registry:
    """How to reach a registry and be let in. Never shown: `password` is in it."""

    insecure: bool = False
    ca: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass
class _Answer:
    """What a registry said about one reference in this run, asked for by one node at a time."""

    lock: RLock = field(default_factory=RLock)
    digest: str | None = None
    compressed_bytes: int | None = None
    failures: int = 0
    problem: str = ""


_ANSWER = 16 << 10  # characters of what assets/registry.py prints
# What the hosts of one run share, found by pyinfra's state of that run: an operation is called for one host and has no
# other place in common with the others.
_answers: WeakKeyDictionary[State, dict[str, _Answer]] = WeakKeyDictionary()


@operation()
def pull(
    reference: str,
    engine: Literal["docker", "podman"] = "docker",
    digest: str | None = None,
    insecure: bool = False,
    ca_file: str | None = None,
    username: str | None = None,
    password_file: str | None = None,
    password_env: str | None = None,
    size_bytes: int | None = None,
    tries: int = 3,
    timeout_s: int = 7200,
    stall_s: int = 300,
) -> Commands:
    """
    Have an image in the engine's store, under its digest and its tag. One that is there is not asked for again.

    + reference: ``name:tag``, ``name@sha256:...`` or ``name:tag@sha256:...``
    + engine: ``docker`` or ``podman``
    + digest: what the tag has been resolved to already; None: the registry is asked, once for all nodes
    + insecure: the registry has no TLS, or a certificate nobody signed
    + ca_file: the authority that signed the registry's certificate, PEM, on the controller
    + username: who logs in
    + password_file: the password on the controller, readable by its owner only
    + password_env: or the controller's environment variable that holds it
    + size_bytes: of the unpacked image, for the room that has to be free
    + tries: pulls until a connection that breaks is given up
    + timeout_s: seconds for all of them
    + stall_s: seconds without any sign of progress that count as a broken connection

    **Example:**

    .. code:: python

        from shakedown.operations import images
        images.pull(
            name="The training image",
            reference="rocm/megatron-lm:v25.5_py310",
        )
    """
    image = parse(reference)
    wanted = image.digest or digest
    names = [f"{name}:{image.tag}" for name in image.names(engine)] if image.tag else []
    here = host.get_fact(ImageDigests, references=[*names, *([image.pinned(wanted)] if wanted else [])], engine=engine)
    stored = next((name for name in names if name in here), None)
    tagged = here[stored] if stored else []
    if (image.tag is None or (wanted in tagged if wanted else stored)) and here:
        host.noop(f"{reference} is there ({', '.join(tagged) or wanted or 'built here'})")
        return
    if wanted and image.pinned(wanted) in here:
        yield StringCommand(engine, "tag", QuoteString(image.pinned(wanted)), QuoteString(image.tagged))
        yield verify(lambda: _lacking(image, wanted, engine))
        return
    try:
        secret = _password(password_file, password_env)
        authority = Path(ca_file).read_text() if ca_file else None
    except (OSError, ValueError) as error:
        yield refuse(f"{reference}: {error}")
        return
    if authority and engine == "docker":
        yield from _trust(image.registry, authority)
    registry = _Registry(insecure, authority, username, secret)
    job = {"engine": engine, "tries": tries, "timeout_s": timeout_s, "stall_s": stall_s, "size_bytes": size_bytes}

    def pulled(state: State, host: Host) -> bool:
        return _pull(state, host, image, wanted, registry, job)

    yield FunctionCommand(pulled, (), {})


def _pull(
    state: State, host: Host, image: Reference, digest: str | None, registry: _Registry, job: dict[str, Any]
) -> bool:
    answer = _ask(state, host, image, digest, registry)
    digest = digest or answer.digest
    if digest is None:
        host.log_styled(f"{image.tagged}: no digest: {answer.problem}", fg="red", log_func=logger.error)
        return False
    size, packed = job["size_bytes"], answer.compressed_bytes or 0
    document = {
        **job,
        **asdict(registry),
        "name": image.name,
        "tag": image.tag,
        "digest": digest,
        "registry": image.registry,
        "room_bytes": (size or UNPACKED * packed) + packed,
        "compressed_bytes": packed,
    }
    done, output = run_script(host, "pull.py", document, show=True, limit_s=job["timeout_s"] + 300)  # it ends itself
    if not done:
        host.log_styled(_explained(image, output.stderr_lines), fg="red", log_func=logger.error)
    return done


def _ask(state: State, host: Host, image: Reference, digest: str | None, registry: _Registry) -> _Answer:
    """The registry's answer: the one that an earlier node had in this run, or this node's."""
    wanted = digest or image.tag or "latest"
    answer = _answers.setdefault(state, {}).setdefault(f"{image.name} {wanted}", _Answer())
    with answer.lock:
        if answer.digest or answer.failures >= ASKING_TRIES:
            return answer
        document = {
            **asdict(registry),
            "registry": image.registry,
            "repository": image.repository,
            "reference": wanted,
        }
        done, output = run_script(host, "registry.py", document, show=False)
        said: dict[str, Any]
        said = said_by_node(output.stdout_lines) if done else {"error": "engine", "detail": output.stderr[-300:]}
        if "error" in said:
            answer.failures += 1
            advice = ADVICE.get(said["error"], "the registry could not be asked")
            answer.problem = f"{printable(str(said['detail']), 500)}: {advice}"
        else:
            answer.digest, answer.compressed_bytes = said["digest"], said["compressed_bytes"]
            if "token_server" in said:
                server = printable(str(said["token_server"])[:1000], 200)
                logger.info(f"{image.registry} has the credentials checked by {server}")
            logger.info(f"{image.tagged} is {answer.digest}, {format_size(said['compressed_bytes'])} compressed")
        return answer


def said_by_node(lines: list[str]) -> dict[str, Any]:
    """What assets/registry.py printed. It is a node's word, and other nodes pull what it names: a digest is a digest, a
    size is a size, and anything else is an answer that makes no sense."""
    try:
        said = load_json(lines[-1], _ANSWER)
        known = {key: str(said[key])[:2000] for key in ("error", "detail")} if "error" in said else said
        size = said.get("compressed_bytes")
        sizes = type(size) is int and 0 <= size < 1 << 50
        if "error" in known or (sizes and re.fullmatch(r"sha256:[0-9a-f]{64}", said["digest"], re.ASCII)):
            return known
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        pass
    return {"error": "answer", "detail": "the node gives no digest and size: " + " ".join(lines[-1:])[:300]}


def _trust(registry: str, authority: str) -> Commands:
    """Let docker trust a registry's authority: a file of its own beside any other of that registry."""
    path = f"{CERTIFICATES}/{registry}/shakedown.crt"
    lines = [atomic.HEADER, *authority.splitlines()]
    if host.get_fact(Contents, patterns=[path]).get(path) == lines:
        return
    yield remember(f"certificate.{registry}", [Step("created", path)])
    yield atomic.write(path, lines)


def _password(file: str | None, variable: str | None) -> str | None:
    """The password, from where the desired state says. Raises ValueError where it is not, or others could read it."""
    if variable:
        if not os.environ.get(variable):
            raise ValueError(f"the environment variable {variable} (password_env) is not set")
        return os.environ[variable]
    return read_secret(file) if file else None


def _lacking(image: Reference, digest: str, engine: str) -> str | None:
    now = host.get_fact(ImageDigests, references=[image.tagged], engine=engine).get(image.tagged, [])
    return None if digest in now else f"{image.tagged} is {', '.join(now) or 'not there'} after tagging {digest}"


def _explained(image: Reference, lines: list[str]) -> str:
    """The failure of pull.py with what to do about it."""
    kind, _, words = (lines[-1] if lines else "").partition(": ")
    advice = ADVICE.get(kind)
    said = printable(words, 1000) if advice else printable(" ".join(lines)[-500:])
    return f"{image.tagged} was not pulled: {said}: {advice}" if advice else f"{image.tagged}: {said}"
