"""Where an image comes from: a node of the run that has it, a mirror, or its registry, in this order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from weakref import WeakKeyDictionary

from gevent.lock import BoundedSemaphore
from pyinfra import logger
from pyinfra.api.host import Host
from pyinfra.api.state import State

from shakedown.images import Reference
from shakedown.operations.givers import REGISTRY, Sharing
from shakedown.operations.handover import hand_over
from shakedown.operations.registries import ADVICE, PASSED_BY, Registry, Told, ask
from shakedown.operations.scripts import run_script
from shakedown.text import printable

UNPACKED = 3  # a training image's size on disk by its compressed size, rounded up; where `size_bytes` is not given

_pulling: WeakKeyDictionary[State, dict[str, BoundedSemaphore]] = WeakKeyDictionary()  # by registry


@dataclass(frozen=True)
class Wish:
    """An image that a node is to have, and how it may come. The fields are the arguments of `images.pull`; `sources`:
    the registry last, its mirror before it."""

    image: Reference
    digest: str | None
    sources: list[Registry] = field(repr=False)
    engine: str
    size_bytes: int | None
    tries: int
    timeout_s: int
    stall_s: int
    at_once: int | None
    sharing: Sharing | None


def fetch(state: State, host: Host, wish: Wish) -> bool:
    """Have the image: from a node that has it, where nodes share, and in any case by a pull. For an image that came
    from a node that is a request for the manifest: docker knows its configuration by then, and holds it under the
    digest that it has seen itself.

    Nodes go by, and share, what two of them were told by the registry: one alone could name what it likes."""
    others = (each for each in state.inventory if each is not host and each.connected)
    answer = ask(state, host, wish.image, wish.digest, wish.sources, others)
    told = answer.told
    if told is None and wish.digest is None:
        host.log_styled(f"{wish.image.tagged}: no digest: {answer.problem}", fg="red", log_func=logger.error)
        return False
    told = told or Told(str(wish.digest), 0)
    told = replace(told, digest=wish.digest or told.digest)
    if wish.sharing and told.config and answer.agreed:
        return _shared(state, host, wish, wish.sharing, told, told.config)
    return _pull(state, host, wish, told)


def _shared(state: State, host: Host, wish: Wish, sharing: Sharing, told: Told, image_id: str) -> bool:
    """Have the image from a node, or be the one that pulls it for the others."""
    givers = sharing.of(image_id)

    def reaches(node: str) -> bool:
        giving = state.inventory.get_host(node)
        return giving is not None and giving.connected and sharing.way(node, host.name) is not None

    while True:
        giver, done = givers.wait(host.name, reaches), False
        try:
            if giver == REGISTRY:
                done = _pull(state, host, wish, told)
                return done
            loaded = _take(state, host, giver, image_id, str(sharing.way(giver, host.name)), wish, told)
            done = loaded and _pull(state, host, replace(wish, at_once=None), told, has_it=True)
            if loaded:
                return done
        finally:
            givers.ended(host.name, giver, done)


def _unpacked(wish: Wish, told: Told) -> int:
    return wish.size_bytes or UNPACKED * told.compressed_bytes


def _take(state: State, host: Host, giver: str, image_id: str, address: str, wish: Wish, told: Told) -> bool:
    times = {"stall_s": wish.stall_s, "timeout_s": wish.timeout_s}
    done, said = hand_over(state.inventory.get_host(giver), host, image_id, address, _unpacked(wish, told), times)
    if done:
        logger.info(f"{host.print_prefix}{image_id[:19]} from {giver}: {printable(said, 300)}")
    else:
        host.log_styled(f"not taken from {giver}: {printable(said, 500)}", fg="yellow", log_func=logger.warning)
    return done


def _pull(state: State, host: Host, wish: Wish, told: Told, has_it: bool = False) -> bool:
    """Pull from the first source that answers. One that gives something else than the digest is not gone past. A node
    that `has_it` asks for the manifest alone, and needs no room."""
    image = wish.image
    for source in wish.sources:
        own = source.registry == image.registry and source.repository == image.repository
        document = {
            **asdict(source),
            "engine": wish.engine,
            "tries": wish.tries,
            "timeout_s": wish.timeout_s,
            "stall_s": wish.stall_s,
            "name": f"{source.registry}/{source.repository}",
            "tag": image.tag if own else None,
            "tagged": image.tagged if image.tag and not own else None,
            "digest": told.digest,
            "room_bytes": 0 if has_it else _unpacked(wish, told) + told.compressed_bytes,
            "compressed_bytes": 0 if has_it else told.compressed_bytes,
        }
        with _slot(state, source.registry, wish.at_once):
            limit = wish.timeout_s + 300  # it ends itself
            done, output = run_script(host, "pull.py", document, show=True, limit_s=limit)
        if done and (own or image.tag):
            return True
        if done:  # without a tag it has no name of its own yet; to the registry it is a request for the manifest
            continue
        last = source is wish.sources[-1] or _kind(output.stderr_lines) not in PASSED_BY
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


def _kind(lines: list[str]) -> str:
    return (lines[-1] if lines else "").partition(": ")[0]


def _explained(image: Reference, lines: list[str], registry: str) -> str:
    """The failure of pull.py with what to do about it."""
    words = (lines[-1] if lines else "").partition(": ")[2]
    advice = ADVICE.get(_kind(lines))
    said = printable(words, 1000) if advice else printable(" ".join(lines)[-500:])
    what = image.tagged if registry == image.registry else f"{image.tagged} (by {registry})"
    return f"{what} was not pulled: {said}: {advice}" if advice else f"{what}: {said}"
