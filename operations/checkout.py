"""Programs from source: a git checkout at a pinned commit."""

import re

from pyinfra.api import QuoteString, StringCommand, operation
from pyinfra.context import host

from shakedown.facts.git import RECORD, Checkout
from shakedown.operations import atomic
from shakedown.operations.commands import INSTALL_S, Commands, refuse, verify

# Where a server gives no commit by its hash, everything is fetched. No question for a password: no person answers.
_FETCH = (
    "export GIT_TERMINAL_PROMPT=0; git -C {p} fetch --quiet --depth 1 -- {u} {c} 2>/dev/null ||"
    " git -C {p} fetch --quiet --tags --force -- {u} '+refs/heads/*:refs/remotes/origin/*'"
)


@operation()
def git(url: str, path: str, commit: str) -> Commands:
    """
    Have a repository checked out at one commit. The network is used only where the commit is missing, and nobody's
    local changes are overwritten: changes that recorded patches made are, when the commit moves.

    + url: where the repository is
    + path: the checkout on the node; absent, empty or a git checkout
    + commit: the full hash; a branch or a tag would not be the same tomorrow

    A checkout is a folder of its own, so the way back is to remove it.

    **Example:**

    .. code:: python

        from shakedown.operations import checkout
        checkout.git(
            name="Megatron-LM",
            url="https://github.com/ROCm/Megatron-LM",
            path="/opt/megatron-lm",
            commit="0d4f0a1d7f5a4e8f9a3c1f0f8d7b6c5a4e3d2c1b",
        )
    """
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        yield refuse(f"{path}: {commit!r} is not a full commit hash (40 hexadecimal digits)")
        return
    now = host.get_fact(Checkout, path=path, commit=commit)
    if problem := _obstacle(path, now):
        yield refuse(problem)
        return
    if now["head"] == commit:
        host.noop(f"{path} is at {commit[:12]}")
        return
    where, what = QuoteString(path), QuoteString(commit)
    yield atomic.safe(path)
    if now["kind"] != "checkout":
        yield StringCommand("git init --quiet", where)
    if not now["has_commit"]:
        parts = re.split(r"(\{[puc]\})", _FETCH)
        words = {"{p}": where, "{u}": QuoteString(url), "{c}": what}
        yield StringCommand(*(words.get(part, part) for part in parts), _separator="", _timeout=INSTALL_S)
    force = ["--force"] if now["patched_only"] else []
    yield StringCommand("git -C", where, "-c advice.detachedHead=false checkout --quiet --detach", *force, what)
    yield atomic.remove(f"{path}/{RECORD}")

    def wrong() -> str | None:
        then = host.get_fact(Checkout, path=path, commit=commit)
        return None if then["head"] == commit else f"{path} is at {then['head']} after the checkout of {commit}"

    yield verify(wrong)


def _obstacle(path: str, now: dict[str, object]) -> str | None:
    if now["error"]:
        return f"{path}: {now['error']}"
    if now["kind"] == "foreign":
        return f"{path} is there and is no git checkout: move it away, or name another path"
    changes = now["changes"]
    if changes and not now["patched_only"]:
        assert isinstance(changes, list)
        shown = ", ".join(str(change).strip() for change in changes[:8]) + (" ..." if len(changes) > 8 else "")
        return f"{path} has local changes that no recorded patch made ({shown}): keep them as a patch, or undo them"
    return None
