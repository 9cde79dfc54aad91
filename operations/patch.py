"""Patches of a checkout: whole or not at all."""

import hashlib
import re
from pathlib import Path

from pyinfra.api import OperationValueError, QuoteString, StringCommand, operation
from pyinfra.context import host

from shakedown.facts.git import RECORD, Checkout, PatchFits, packed
from shakedown.operations import atomic
from shakedown.operations.commands import Commands, refuse, verify

_NO_COMMIT = "0" * 40
_FAILED = re.compile(r"^error: patch failed: (.+):(\d+)$")
_HUNK = re.compile(r"^@@ -(\d+)")


@operation()
def apply(path: str, patch_file: str) -> Commands:
    """
    Have a patch applied to a checkout. One that is in it already changes nothing, one that does not fit changes
    nothing either and fails with the hunks that were rejected.

    + path: the git checkout on the node
    + patch_file: the patch on the controller, as `git diff` writes it

    What it changes is recorded beside the checkout's own data, so that `checkout.git` knows it from other people's
    work. The way back is the checkout's: `git checkout --force HEAD`.

    **Example:**

    .. code:: python

        from shakedown.operations import patch
        patch.apply(name="Without apex", path="/opt/megatron-lm", patch_file="patches/remove_nvidia_deps.patch")
    """
    try:
        text = Path(patch_file).read_bytes().decode()
        word = packed(text)
    except (OSError, UnicodeDecodeError, OperationValueError) as error:
        yield refuse(f"{patch_file}: {getattr(error, 'strerror', None) or error}")
        return
    digest = hashlib.sha256(text.encode()).hexdigest()
    now = host.get_fact(Checkout, path=path, commit=_NO_COMMIT)
    if now["error"] or now["kind"] != "checkout":
        yield refuse(f"{path}: {now['error'] or 'no git checkout, so there is nothing to patch'}")
        return
    if now["patched_only"] and digest in now["patches"]:
        host.noop(f"{patch_file} is applied to {path}")
        return
    state, *errors = host.get_fact(PatchFits, path=path, patch=text) or ["unknown"]
    if state == "applied":
        host.noop(f"{patch_file} is in {path} already")
        return
    if state != "fits":
        yield refuse(f"{patch_file} does not apply to {path}, which is unchanged:\n{rejected(text, errors)}")
        return
    where = QuoteString(path)
    yield atomic.safe(f"{path}/.git")
    # All files or none: git applies to a copy in memory first. The record follows at once.
    yield StringCommand(
        "set -e; p=", where, "; printf %s ", word, ' | base64 -d | gunzip | git -C "$p" apply --index -; ',
        f'r="$p/{RECORD}"; ',
        '{ echo "diff $(git -C "$p" diff --binary HEAD | sha256sum | cut -d\' \' -f1)"; ',
        f'grep "^patch " "$r" 2>/dev/null || true; echo "patch {digest}"; }} > "$r.new"; mv -f "$r.new" "$r"',
        _separator="",
    )  # fmt: skip

    def wrong() -> str | None:
        then = host.get_fact(PatchFits, path=path, patch=text)
        return None if then[:1] == ["applied"] else f"{patch_file} is not in {path} after applying it: {then}"

    yield verify(wrong)


def rejected(patch: str, errors: list[str]) -> str:
    """Return the hunks that git names as failed, with their headers and lines; git's own words for everything else."""
    found, others = [], []
    hunks = _hunks(patch)
    for error in errors:
        if failed := _FAILED.match(error):
            hunk = hunks.get((failed[1], int(failed[2])))
            found += [f"{failed[1]}:{failed[2]}", *hunk] if hunk else [error]
        elif not error.startswith("error: while searching"):
            others.append(error)
    return "\n".join([*others, *found]) or "git gives no reason"


def _hunks(patch: str) -> dict[tuple[str, int], list[str]]:
    """(file, first old line) -> the lines of each hunk. git counts a leading line of context as part of it."""
    hunks: dict[tuple[str, int], list[str]] = {}
    file, current = "", None
    for line in patch.splitlines():
        header = _HUNK.match(line)
        if line.startswith("--- "):
            file, current = line[4:].split("\t")[0].removeprefix("a/"), None
        elif header:
            current = hunks.setdefault((file, int(header[1])), [line])
        elif line.startswith("diff "):
            current = None
        elif current is not None and not line.startswith("+++ "):
            current.append(line)
    return hunks
