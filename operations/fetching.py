"""Where an image comes from: a mirror, or its registry."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from weakref import WeakKeyDictionary

from gevent.lock import BoundedSemaphore
from pyinfra import logger
from pyinfra.api.host import Host
from pyinfra.api.state import State

from shakedown.common.text import printable
from shakedown.operations.registries import ADVICE, PASSED_BY, Manifest, Registry, ask
from shakedown.operations.scripts import run_script
from shakedown.state.images import Reference

UNPACKED = 3  # a training image's size on disk by its compressed size, rounded up; where `size_bytes` is not given

_pulling: WeakKeyDictionary[State, dict[str, BoundedSemaphore]] = WeakKeyDictionary()  # by registry


@dataclass(frozen=True)
class Wish:
    """An image that a node is to have, and how it may come. The fields are the arguments of `images.pull`; `sources`:
    the registry last, its mirror before it."""

    image: Reference
    sources: list[Registry] = field(repr=False)
    engine: str
    size_bytes: int | None
    tries: int
    timeout_s: int
    stall_s: int
    at_once: int | None


def fetch(state: State, host: Host, wish: Wish, looks: bool = False) -> bool:
    """Have the image, by the digest that the inventory or the registry names. `looks`: only say whether there is one,
    and room for it."""
    answer = ask(state, host, wish.image, wish.image.digest, wish.sources)
    if isinstance(answer, str):
        if wish.image.digest is None or looks:
            problem = f"{wish.image.tagged}: no digest: {answer}"
            host.log_styled(problem, fg="red", log_func=logger.error)
            return False
        answer = Manifest(wish.image.digest, 0)
    return _pull(state, host, wish, answer, looks)


def _unpacked(wish: Wish, manifest: Manifest) -> int:
    return wish.size_bytes or UNPACKED * manifest.compressed_bytes


def _pull(state: State, host: Host, wish: Wish, manifest: Manifest, looks: bool = False) -> bool:
    """Pull from the first source that answers. A source that gives something else than the digest ends the pull."""
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
            "digest": manifest.digest,
            "room_bytes": _unpacked(wish, manifest) + manifest.compressed_bytes,
            "compressed_bytes": manifest.compressed_bytes,
            "looks": looks,
        }
        with _slot(state, source.registry, wish.at_once):
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
    """Return the failure of pull.py with what to do about it."""
    words = (lines[-1] if lines else "").partition(": ")[2]
    advice = ADVICE.get(_kind(lines))
    message = printable(words, 1000) if advice else printable(" ".join(lines)[-500:])
    what = image.tagged if registry == image.registry else f"{image.tagged} (by {registry})"
    return f"{what} was not pulled: {message}: {advice}" if advice else f"{what}: {message}"
