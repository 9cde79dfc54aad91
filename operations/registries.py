"""Registries and the mirrors of them: how to be let in, and what they say of an image. The controller asks for all."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from gevent.lock import BoundedSemaphore, RLock
from pyinfra import logger
from pyinfra.api import Host, State
from pyinfra.facts.server import Arch

from shakedown.common.data import read_toml
from shakedown.common.secret_file import read_secret
from shakedown.common.text import load_json, printable
from shakedown.desired.values import format_size
from shakedown.operations.atomic import ASSETS, run_script
from shakedown.operations.commands import refused
from shakedown.state.images import Reference
from shakedown.transport.program import program

SCRIPT = "registry.py"
LIMIT_S = 150  # on the controller; the script ends itself after 120 s
Run = Callable[[dict[str, Any]], dict[str, Any]]  # where assets/registry.py runs

_DATA = read_toml("shakedown.operations", "advice.toml")
ADVICE: dict[str, str] = _DATA["image"]
KINDS = list(_DATA["image_words"].items())  # with the patterns of their words


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
class Manifest:
    digest: str
    compressed_bytes: int


@dataclass
class _Answer:
    """What the controller was answered about one reference in this run. None: it has not asked yet."""

    lock: RLock = field(default_factory=RLock)
    result: Manifest | str | None = None


# Kinds of failure after which a mirror is passed by for the registry: it is not there, or has it not.
PASSED_BY = ("transport", "unknown")
_ANSWER = 16 << 10  # characters of what assets/registry.py prints
# What the hosts of one run share, found by pyinfra's state of that run: an operation is called for one host and has no
# other place in common with the others.
_answers: WeakKeyDictionary[State, dict[str, _Answer]] = WeakKeyDictionary()


def registry_of(registry: str, repository: str, access: dict[str, Any]) -> Registry:
    """Return the registry with its certificate and password. Raise OSError or ValueError as their files do."""
    secret = password_of(access.get("password_file"), access.get("password_env"))
    authority = Path(access["ca_file"]).read_text() if access.get("ca_file") else None
    return Registry(registry, repository, bool(access.get("insecure")), authority, access.get("username"), secret)


def sources_of(image: Reference, access: dict[str, Any], mirror: dict[str, Any] | None) -> list[Registry]:
    """Return where an image may be pulled from, the registry last. Raise as `registry_of`."""
    own = registry_of(image.registry, image.repository, access)
    if not mirror:
        return [own]
    place, _, prefix = mirror["address"].partition("/")
    return [registry_of(place, f"{prefix}/{image.repository}".lstrip("/"), mirror), own]


def ask(state: State, host: Host, image: Reference, digest: str | None, sources: list[Registry]) -> Manifest | str:
    """Return what the registry says of an image, or why there is no answer. A mirror is asked where the registry itself
    gives none. The controller asks once per run, for all nodes. Where the controller gets no answer, a node asks, for
    itself alone: no node's word decides what another node pulls."""
    wanted = digest or image.tag or "latest"
    answer = _answers.setdefault(state, {}).setdefault(f"{image.name} {wanted}", _Answer())
    with answer.lock:
        if answer.result is None:
            answer.result = _ask(_here, {"machine": host.get_fact(Arch)}, wanted, sources)
            if isinstance(answer.result, Manifest):
                size = format_size(answer.result.compressed_bytes)
                logger.info(f"{image.tagged} is {answer.result.digest}, {size} compressed")
            else:
                why = f"the controller has no answer ({answer.result}); each node asks for itself"
                logger.warning(f"{image.tagged}: {why}")
    if isinstance(answer.result, Manifest):
        return answer.result
    return _ask(lambda document: _there(host, document), {}, wanted, sources)


def _ask(run: Run, more: dict[str, Any], wanted: str, sources: list[Registry]) -> Manifest | str:
    """Return the answer of the registry, or else of its mirror, to one machine; or why there is none."""
    problem = ""
    for source in reversed(sources):
        answer = run({**asdict(source), **more, "reference": wanted})
        if "error" not in answer:
            if "token_server" in answer:
                server = printable(str(answer["token_server"])[:1000], 200)
                logger.info(f"{source.registry} has the credentials checked by {server}")
            return Manifest(answer["digest"], answer["compressed_bytes"])
        advice = ADVICE.get(answer["error"], "the registry could not be asked")
        problem = f"{source.registry}: {printable(str(answer['detail']), 500)}: {advice}"
        if answer["error"] not in PASSED_BY:
            break
    return problem


def _here(document: dict[str, Any]) -> dict[str, Any]:
    """Run assets/registry.py on the controller. Passwords go over standard input here, too."""
    argv, text = [sys.executable, "-I", "-c", program(ASSETS / SCRIPT)], json.dumps(document)
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, errors="replace", timeout=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": "transport", "detail": f"{type(error).__name__} on the controller"}
    return parse_answer(done.stdout.splitlines())


def _there(host: Host, document: dict[str, Any]) -> dict[str, Any]:
    done, output = run_script(host, SCRIPT, document, show=False)
    return parse_answer(output.stdout_lines) if done else {"error": "engine", "detail": output.stderr[-300:]}


def parse_answer(lines: list[str]) -> dict[str, Any]:
    """Return what assets/registry.py printed, maybe on a node, as far as digest and size make sense."""
    with suppress(ValueError, IndexError, KeyError, TypeError, AttributeError):
        answer = load_json(lines[-1], _ANSWER)
        if "error" in answer:
            return {key: str(answer[key])[:2000] for key in ("error", "detail")}
        size = answer.get("compressed_bytes")
        sized = type(size) is int and 0 <= size < 1 << 50
        if sized and re.fullmatch(r"sha256:[0-9a-f]{64}", answer.get("digest"), re.ASCII):
            return {key: answer[key] for key in ("digest", "compressed_bytes", "token_server") if key in answer}
    return {"error": "answer", "detail": "there is no digest and size in: " + " ".join(lines[-1:])[:300]}


def password_of(file: str | None, variable: str | None) -> str | None:
    """Return the password from its file or variable. Raise ValueError where it is missing or others could read it."""
    if variable:
        if not os.environ.get(variable):
            raise ValueError(f"the environment variable {variable} (password_env) is not set")
        return os.environ[variable]
    return read_secret(file) if file else None


UNPACKED = 3  # a training image's size on disk by its compressed size, rounded up; where `size_bytes` is not given

_pulling: WeakKeyDictionary[State, dict[str, BoundedSemaphore]] = WeakKeyDictionary()  # by registry


@dataclass(frozen=True)
class Wish:
    """The arguments of `images.pull`. `sources`: the registry last, its mirror before it."""

    image: Reference
    sources: list[Registry] = field(repr=False)
    engine: str
    size_bytes: int | None
    tries: int
    timeout_s: int
    stall_s: int
    at_once: int | None


def fetch(state: State, host: Host, wish: Wish, looks: bool = False) -> bool:
    """Have the image, by the inventory's or the registry's digest. `looks`: only say whether it and room are there."""
    image = wish.image
    manifest = ask(state, host, image, image.digest, wish.sources)
    if isinstance(manifest, str):
        if image.digest is None or looks:
            return refused(state, host, f"{image.tagged}: no digest: {manifest}")
        manifest = Manifest(image.digest, 0)
    # The first source that answers. A source that gives something else than the digest ends the pull.
    for source in wish.sources:
        own = source.registry == image.registry and source.repository == image.repository
        document = {
            **asdict(source),
            **{key: getattr(wish, key) for key in ("engine", "tries", "timeout_s", "stall_s")},
            "name": f"{source.registry}/{source.repository}",
            "tagged": image.tagged if image.tag else None,
            "digest": manifest.digest,
            "room_bytes": (wish.size_bytes or UNPACKED * manifest.compressed_bytes) + manifest.compressed_bytes,
            "compressed_bytes": manifest.compressed_bytes,
            "looks": looks,
            "kinds": KINDS,
        }
        slots = _pulling.setdefault(state, {})
        with slots.setdefault(source.registry, BoundedSemaphore(wish.at_once)) if wish.at_once else nullcontext():
            limit = wish.timeout_s + 300  # it ends itself
            done, output = run_script(host, "pull.py", document, show=not looks, limit_s=limit)
        if done and (own or image.tag or looks):
            return True
        if done:  # without a tag it has no name of its own yet; to the registry it is a request for the manifest
            continue
        last = source is wish.sources[-1] or _kind(output.stderr_lines) not in PASSED_BY
        colour, log = ("red", logger.error) if last else ("yellow", logger.warning)
        host.log_styled(_explained(image, output.stderr_lines, source.registry), fg=colour, log_func=log)
        if last:
            return False
    return False


def _kind(lines: list[str]) -> str:
    return (lines[-1] if lines else "").partition(": ")[0]


def _explained(image: Reference, lines: list[str], registry: str) -> str:
    """Return the failure of pull.py with what to do about it."""
    words = (lines[-1] if lines else "").partition(": ")[2]
    advice = ADVICE.get(_kind(lines))
    message = printable(words, 1000) if advice else printable(" ".join(lines)[-500:])
    what = image.tagged if registry == image.registry else f"{image.tagged} (by {registry})"
    return f"{what} was not pulled: {message}: {advice}" if advice else f"{what}: {message}"
