"""Registries and the mirrors of them: how to be let in, and what they say of an image. One node asks for all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from gevent.lock import RLock
from pyinfra import logger
from pyinfra.api.host import Host
from pyinfra.api.state import State

from shakedown.desired.sizes import format_size
from shakedown.images import Reference
from shakedown.operations.scripts import run_script
from shakedown.secret_file import read_secret
from shakedown.text import load_json, printable

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
class Registry:
    """How to reach a registry, or a mirror of it, and be let in. Never shown: `password` is in it."""

    registry: str
    repository: str
    insecure: bool = False
    ca: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Told:
    """What a registry said to one node."""

    digest: str
    compressed_bytes: int
    config: str | None = None  # docker's id of the image


@dataclass
class Answer:
    """What a registry said about one reference in this run, asked for by one node at a time. `agreed`: two nodes were
    told it, so that it is no single node's word; what only `by` was told holds for that one alone."""

    lock: RLock = field(default_factory=RLock)
    told: Told | None = None
    by: str = ""
    agreed: bool = False
    failures: int = 0
    problem: str = ""


# Kinds of failure after which a mirror is passed by for the registry: it is not there, or has it not.
PASSED_BY = ("transport", "unknown")
_ANSWER = 16 << 10  # characters of what assets/registry.py prints
# What the hosts of one run share, found by pyinfra's state of that run: an operation is called for one host and has no
# other place in common with the others.
_answers: WeakKeyDictionary[State, dict[str, Answer]] = WeakKeyDictionary()


def registry_of(registry: str, repository: str, access: dict[str, Any]) -> Registry:
    """Raises OSError or ValueError for files that cannot be read, or that others could."""
    secret = password_of(access.get("password_file"), access.get("password_env"))
    authority = Path(access["ca_file"]).read_text() if access.get("ca_file") else None
    return Registry(registry, repository, bool(access.get("insecure")), authority, access.get("username"), secret)


def mirror_of(image: Reference, mirror: dict[str, Any]) -> Registry:
    place, _, prefix = mirror["address"].partition("/")
    return registry_of(place, f"{prefix}/{image.repository}".lstrip("/"), mirror)


def sources_of(image: Reference, access: dict[str, Any], mirror: dict[str, Any] | None) -> list[Registry]:
    """Where an image may be pulled from, the registry last. Raises as `registry_of`."""
    own = registry_of(image.registry, image.repository, access)
    return [mirror_of(image, mirror), own] if mirror else [own]


def ask(
    state: State, host: Host, image: Reference, digest: str | None, sources: list[Registry], witnesses: Iterable[Host]
) -> Answer:
    """The registry's answer: the one that two nodes had in this run, or else this node's. A mirror is asked where the
    registry itself gives none. `witnesses`: other nodes, of which up to three are asked until two were told the same:
    no single one decides what the others run. A node that cannot ask goes by what another was told."""
    wanted = digest or image.tag or "latest"
    answer = _answers.setdefault(state, {}).setdefault(f"{image.name} {wanted}", Answer())
    with answer.lock:
        if answer.agreed or answer.by == host.name or answer.failures >= ASKING_TRIES:
            return answer
        found = _told(host, image, wanted, sources)
        if isinstance(found, str):
            answer.problem = found
            answer.failures += 1
            return answer
        if answer.told is not None:
            return Answer(told=found, by=host.name)
        others = list(islice(witnesses, ASKING_TRIES))
        answer.told, answer.agreed = by_two(found, (_witnessed(each, host, image, wanted, sources) for each in others))
        answer.by = host.name
        if others and not answer.agreed:
            why = "each node goes by what it is told itself, and takes nothing from another"
            logger.warning(f"{image.tagged}: no two nodes were told the same of it by its registry: {why}")
        size = format_size(answer.told.compressed_bytes)
        logger.info(f"{image.tagged} is {answer.told.digest}, {size} compressed")
        return answer


def by_two(first: Told, others: Iterable[Told | str]) -> tuple[Told, bool]:
    """What two nodes were told, of which neither has to be the first, and True; else what the first was told. Those
    that could not ask (str: why) do not count."""
    known = [first]
    for other in others:
        if other in known:
            return known[known.index(other)], True
        if isinstance(other, Told):
            known.append(other)
    return first, False


def _witnessed(host: Host, like: Host, image: Reference, wanted: str, sources: list[Registry]) -> Told | str:
    try:
        return _told(host, image, wanted, sources, like)
    except Exception as error:  # whatever is wrong with another node is none of this one's
        return f"{type(error).__name__}: {error}"


def _told(host: Host, image: Reference, wanted: str, sources: list[Registry], like: Host | None = None) -> Told | str:
    """What the registry, or else its mirror, says to one node; or why there is none."""
    problem = ""
    for source in reversed(sources):
        document = {**asdict(source), "reference": wanted}
        done, output = run_script(host, "registry.py", document, show=False, like=like)
        said: dict[str, Any] = (
            said_by_node(output.stdout_lines) if done else {"error": "engine", "detail": output.stderr[-300:]}
        )
        if "error" not in said:
            if "token_server" in said:
                server = printable(str(said["token_server"])[:1000], 200)
                logger.info(f"{source.registry} has the credentials checked by {server}")
            return Told(said["digest"], said["compressed_bytes"], said.get("config"))
        advice = ADVICE.get(said["error"], "the registry could not be asked")
        problem = f"{source.registry}: {printable(str(said['detail']), 500)}: {advice}"
        if said["error"] not in PASSED_BY:
            break
    return problem


def said_by_node(lines: list[str]) -> dict[str, Any]:
    """What assets/registry.py printed. It is a node's word, and other nodes pull what it names: a digest is a digest, a
    size is a size, and anything else is an answer that makes no sense."""
    try:
        said = load_json(lines[-1], _ANSWER)
        known = {key: str(said[key])[:2000] for key in ("error", "detail")} if "error" in said else said
        size = said.get("compressed_bytes")
        sizes = type(size) is int and 0 <= size < 1 << 50
        digests = [said.get("digest"), *([said["config"]] if "config" in said else [])]
        if "error" in known or (
            sizes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", each, re.ASCII) for each in digests)
        ):
            return known
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        pass
    return {"error": "answer", "detail": "the node gives no digest and size: " + " ".join(lines[-1:])[:300]}


def password_of(file: str | None, variable: str | None) -> str | None:
    """The password, from where the desired state says. Raises ValueError where it is not, or others could read it."""
    if variable:
        if not os.environ.get(variable):
            raise ValueError(f"the environment variable {variable} (password_env) is not set")
        return os.environ[variable]
    return read_secret(file) if file else None
