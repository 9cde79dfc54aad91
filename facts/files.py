"""Files on a node: who may open them, and what is in them by digest."""

from typing import Any

from shakedown.facts.base import Fact, expect


class Access(Fact[dict[str, list[str]]]):
    """
    Returns mode and group of each character device that matches one of the patterns.

    .. code:: python

        {"/dev/kfd": ["0660", "render"]}
    """

    default = dict

    def command(self, patterns: list[str]) -> str:
        return f'for f in {checked(patterns)}; do [ -c "$f" ] && stat -c "0%a %G %n" "$f"; done; true'

    def process(self, output: Any) -> dict[str, list[str]]:
        rows = (line.split(" ", 2) for line in output)
        return {path: [f"{int(mode, 8):04o}", group] for mode, group, path in rows}


class Digests(Fact[dict[str, str]]):
    """
    Returns the SHA-256 of each of the files, "" for a symbolic link that leads nowhere. A file that is not there is
    left out; one that cannot be read fails the host.

    .. code:: python

        {"/usr/local/lib/libbnxt_re-rdmav34.so": "9f86d081884c7d65..."}
    """

    default = dict

    def command(self, paths: list[str]) -> str:
        return (
            f'for f in {checked(paths)}; do if [ -e "$f" ]; then sha256sum "$f" || exit 1; '
            'elif [ -L "$f" ]; then echo "-  $f"; fi; done'
        )

    def process(self, output: Any) -> dict[str, str]:
        rows = (line.split("  ", 1) for line in output)
        return {path: digest.strip("-") for digest, path in rows}


def checked(patterns: list[str]) -> str:
    """Return the patterns as the shell is to expand them: nothing else may reach it."""
    expect(r"/[\w./*?\[\]@:+-]*", "a path or a shell pattern", *patterns)
    return " ".join(patterns)
