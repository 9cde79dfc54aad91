"""Git checkouts on a node, and whether a patch fits one."""

import base64
import gzip
import shlex
from typing import Any

from pyinfra.api import OperationValueError

from shakedown.facts.base import Fact, expect
from shakedown.facts.records import guarded

# What we changed in a checkout ourselves: the SHA-256 of the difference to HEAD, and of each patch that made it.
RECORD = ".git/shakedown"
LONGEST = 96 << 10  # of a packed patch: the shell takes 128 KiB in one word, and base64 adds a third

_NO_GIT = "if ! command -v git >/dev/null; then echo 'error git is not installed'; exit 0; fi; "
_READ = """p={path}; export LC_ALL=C GIT_OPTIONAL_LOCKS=0
if [ ! -e "$p" ]; then echo 'kind absent'; exit 0; fi
if [ ! -e "$p/.git" ]; then if [ -d "$p" ] && [ -z "$(ls -A "$p")" ]; then echo 'kind empty'; else echo 'kind foreign'; fi; exit 0; fi
why=$(git -C "$p" rev-parse --git-dir 2>&1 >/dev/null) || {{ printf 'error %s\\n' "$why" | head -1; exit 0; }}
echo 'kind checkout'
head=$(git -C "$p" rev-parse -q --verify HEAD) || exit 0
echo "head $head"
git -C "$p" cat-file -e {commit}^{{commit}} 2>/dev/null && echo 'has commit'
git -C "$p" status --porcelain --untracked-files=no | sed 's/^/change /'
echo "diff $(git -C "$p" diff --binary HEAD | sha256sum | cut -d' ' -f1)"
[ ! -e "$p/{record}" ] || sed 's/^/record /' "$p/{record}"
"""  # noqa: E501

_FITS = """p={path}; export LC_ALL=C; t=$(mktemp) || exit 1; trap 'rm -f "$t"' EXIT
printf %s {packed} | base64 -d | gunzip > "$t" || exit 1
if git -C "$p" apply --check --reverse "$t" 2>/dev/null; then echo applied
elif git -C "$p" apply --check "$t" 2>/dev/null; then echo fits
else echo rejected; git -C "$p" apply --check --reject --verbose "$t" 2>&1 | grep '^error:' | sort -u; fi; true"""


class Checkout(Fact[dict[str, Any]]):
    """
    Returns what stands at a path: `kind` is absent, empty, checkout or foreign (something else); `changes` are the
    tracked files that differ from `head`, and `patched_only` says that all of the difference is recorded patches, whose
    SHA-256 `patches` names. `error` says why git cannot tell.

    .. code:: python

        {
            "kind": "checkout",
            "head": "c3a1b2...",
            "has_commit": True,
            "changes": ["M  megatron/training.py"],
            "patched_only": True,
            "patches": ["9f86d081884c7d65..."],
            "error": None,
        }
    """

    @staticmethod
    def default() -> dict[str, Any]:
        return {"error": "nothing was said about it"}

    def command(self, path: str, commit: str) -> str:
        expect(r"[0-9a-f]{40}", "a full commit hash", commit)
        read = _READ.format(path=shlex.quote(path), commit=commit, record=RECORD)
        return _NO_GIT + guarded(path, read)  # git runs what a checkout's configuration says

    def process(self, output: Any) -> dict[str, Any]:
        fields: dict[str, list[str]] = {}
        for line in output:
            key, _, value = line.partition(" ")
            fields.setdefault(key, []).append(value)
        record = [line.split(" ", 1) for line in fields.get("record", []) if " " in line]
        changes = fields.get("change", [])
        return {
            "kind": fields.get("kind", ["foreign"])[0],
            "head": fields.get("head", [None])[0],
            "has_commit": "has" in fields,
            "changes": changes,
            "patched_only": bool(changes) and [value for key, value in record if key == "diff"] == fields.get("diff"),
            "patches": [value for key, value in record if key == "patch"],
            "error": fields.get("error", [None])[0],
        }


class PatchFits(Fact[list[str]]):
    """
    Returns whether a patch is in a checkout already, fits it, or what of it is rejected. Changes nothing.

    .. code:: python

        ["rejected", "error: patch failed: megatron/training.py:59"]
    """

    default = list

    def command(self, path: str, patch: str) -> str:
        return _FITS.format(path=shlex.quote(path), packed=packed(patch))

    def process(self, output: Any) -> list[str]:
        return list(output)


def packed(patch: str) -> str:
    """Write a patch as one word of a shell command. Raise OperationValueError for a patch that is too long for that."""
    word = base64.b64encode(gzip.compress(patch.encode(), mtime=0)).decode()
    if len(word) > LONGEST * 4 // 3:
        raise OperationValueError(f"a patch of {len(patch)} characters does not fit a command line: divide it")
    return word
