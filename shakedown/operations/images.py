"""
Container images, by digest. A tag is resolved once, and then every node pulls the same digest.

The first node that needs an image asks the registry for the digest and the size with a few lines of Python, and the
others use its answer. A node asks and not the controller, because only the nodes are known to reach the registry; and
not the engine, whose `manifest inspect` ignores the certificates and credentials it would pull with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Literal
from weakref import WeakKeyDictionary

from gevent.lock import BoundedSemaphore
from pyinfra import logger
from pyinfra.api.command import FunctionCommand, QuoteString, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from shakedown.facts.images import ImageDigests
from shakedown.facts.settings import Contents
from shakedown.images import Reference, parse
from shakedown.operations import atomic
from shakedown.operations.commands import Commands, refuse, verify
from shakedown.operations.givers import REGISTRY, Sharing
from shakedown.operations.handover import hand_over
from shakedown.operations.record import Step, remember
from shakedown.operations.registries import ADVICE, PASSED_BY, Registry, ask, mirror_of, registry_of
from shakedown.operations.scripts import run_script
from shakedown.text import printable

CERTIFICATES = "/etc/docker/certs.d"
UNPACKED = 3  # a training image's size on disk by its compressed size, rounded up; where `size_bytes` is not given


_pulling: WeakKeyDictionary[State, dict[str, BoundedSemaphore]] = WeakKeyDictionary()  # by registry


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
    at_once: int | None = None,
    mirror: dict[str, Any] | None = None,
    sharing: Sharing | None = None,
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
    + at_once: hosts of a run that pull from one registry at a time; None: all
    + mirror: where it is pulled from instead: ``address`` (host, port and a prefix), and as for the registry
      ``insecure``, ``ca_file``, ``username``, ``password_file``, ``password_env``; the registry where it is silent
    + sharing: nodes of the run that have it give it to others (docker only)

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
    origin = {"insecure": insecure, "ca_file": ca_file, "username": username}
    origin |= {"password_file": password_file, "password_env": password_env}
    try:
        sources = [registry_of(image.registry, image.repository, origin)]
        if mirror:
            sources.insert(0, mirror_of(image, mirror))
    except (OSError, ValueError) as error:
        yield refuse(f"{reference}: {error}")
        return
    for source in sources:
        if source.ca and engine == "docker":
            yield from _trust(source.registry, source.ca)
    job = {"engine": engine, "tries": tries, "timeout_s": timeout_s, "stall_s": stall_s, "size_bytes": size_bytes}
    job["at_once"] = at_once

    def pulled(state: State, host: Host) -> bool:
        return _have(state, host, image, wanted, sources, job, sharing if engine == "docker" else None)

    yield FunctionCommand(pulled, (), {})


def _have(
    state: State,
    host: Host,
    image: Reference,
    digest: str | None,
    sources: list[Registry],
    job: dict[str, Any],
    sharing: Sharing | None,
) -> bool:
    """Have the image: from a node that has it, where nodes share, and in any case by a pull. For an image that came
    from a node that is a request for the manifest: docker knows its configuration by then, and holds it under the
    digest that it has seen itself."""
    answer = ask(state, host, image, digest, sources)
    digest = digest or answer.digest
    if digest is None:
        host.log_styled(f"{image.tagged}: no digest: {answer.problem}", fg="red", log_func=logger.error)
        return False
    packed = answer.compressed_bytes or 0
    size = job["size_bytes"] or UNPACKED * packed
    if sharing is None or answer.config is None:
        return _pull(state, host, image, digest, sources, job, packed, size + packed)
    givers, image_id = sharing.of(answer.config), answer.config

    def reaches(node: str) -> bool:
        giving = state.inventory.get_host(node)
        return giving is not None and giving.connected and sharing.way(node, host.name) is not None

    while True:
        giver, done = givers.wait(host.name, reaches), False
        try:
            if giver == REGISTRY:
                done = _pull(state, host, image, digest, sources, job, packed, size + packed)
                return done
            loaded = _take(state, host, giver, image_id, str(sharing.way(giver, host.name)), size, job)
            done = loaded and _pull(state, host, image, digest, sources, {**job, "at_once": None}, 0, 0)
            if loaded:
                return done
        finally:
            givers.ended(host.name, giver, done)


def _take(state: State, host: Host, giver: str, image_id: str, address: str, size: int, job: dict[str, Any]) -> bool:
    times = {key: job[key] for key in ("stall_s", "timeout_s")}
    done, said = hand_over(state.inventory.get_host(giver), host, image_id, address, size, times)
    if done:
        logger.info(f"{host.print_prefix}{image_id[:19]} from {giver}: {printable(said, 300)}")
    else:
        host.log_styled(f"not taken from {giver}: {printable(said, 500)}", fg="yellow", log_func=logger.warning)
    return done


def _pull(
    state: State,
    host: Host,
    image: Reference,
    digest: str,
    sources: list[Registry],
    job: dict[str, Any],
    packed: int,
    room: int,
) -> bool:
    """Pull from the first source that answers. One that gives something else than the digest is not gone past."""
    for source in sources:
        own = source.registry == image.registry and source.repository == image.repository
        document = {
            **job,
            **asdict(source),
            "name": f"{source.registry}/{source.repository}",
            "tag": image.tag if own else None,
            "tagged": image.tagged if image.tag and not own else None,
            "digest": digest,
            "room_bytes": room,
            "compressed_bytes": packed,
        }
        with _slot(state, source.registry, job["at_once"]):
            limit = job["timeout_s"] + 300  # it ends itself
            done, output = run_script(host, "pull.py", document, show=True, limit_s=limit)
        if done and (own or image.tag):
            return True
        if done:  # without a tag it has no name of its own yet; to the registry it is a request for the manifest
            continue
        last = source is sources[-1] or _kind(output.stderr_lines) not in PASSED_BY
        colour, log = ("red", logger.error) if last else ("yellow", logger.warning)
        host.log_styled(_explained(image, output.stderr_lines, source.registry), fg=colour, log_func=log)
        if last:
            return False
    return False


@contextmanager
def _slot(state: State, registry: str, at_once: int | None) -> Iterator[None]:
    """One of the pulls that a registry gets at a time."""
    if at_once is None:
        yield
        return
    slots = _pulling.setdefault(state, {})
    with slots.setdefault(registry, BoundedSemaphore(at_once)):
        yield


def _trust(registry: str, authority: str) -> Commands:
    """Let docker trust a registry's authority: a file of its own beside any other of that registry."""
    path = f"{CERTIFICATES}/{registry}/shakedown.crt"
    lines = [atomic.HEADER, *authority.splitlines()]
    if host.get_fact(Contents, patterns=[path]).get(path) == lines:
        return
    yield remember(f"certificate.{registry}", [Step("created", path)])
    yield atomic.write(path, lines)


def _lacking(image: Reference, digest: str, engine: str) -> str | None:
    now = host.get_fact(ImageDigests, references=[image.tagged], engine=engine).get(image.tagged, [])
    return None if digest in now else f"{image.tagged} is {', '.join(now) or 'not there'} after tagging {digest}"


def _kind(lines: list[str]) -> str:
    return (lines[-1] if lines else "").partition(": ")[0]


def _explained(image: Reference, lines: list[str], registry: str) -> str:
    """The failure of pull.py with what to do about it."""
    words = (lines[-1] if lines else "").partition(": ")[2]
    advice = ADVICE.get(_kind(lines))
    said = printable(words, 1000) if advice else printable(" ".join(lines)[-500:])
    what = image.tagged if registry == image.registry else f"{image.tagged} (by {registry})"
    return f"{what} was not pulled: {said}: {advice}" if advice else f"{what}: {said}"
