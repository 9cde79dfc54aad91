"""The libraries that libibverbs loads for a device."""

from typing import Any

from shakedown.facts.base import Fact
from shakedown.node.software import parse_provider

_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu/libibverbs",
    "/usr/lib64/libibverbs",
    "/usr/local/lib/libibverbs",
    "/usr/local/lib",
)


class ProviderLibraries(Fact[list[dict[str, Any]]]):
    """
    Returns the provider libraries of the host. The number in a name has to be that of the libibverbs which loads it,
    and host and container need the same digest.

    .. code:: python

        [
            {
                "path": "/usr/local/lib/libbnxt_re-rdmav34.so",
                "provider": "bnxt_re",
                "abi": 34,
                "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            },
        ]
    """

    default = list

    def command(self) -> str:
        return f"sha256sum {' '.join(f'{folder}/lib*-rdmav*.so' for folder in _FOLDERS)} 2>/dev/null; true"

    def process(self, output: list[str]) -> list[dict[str, Any]]:
        found = []
        for line in output:
            digest, _, path = line.partition("  ")
            provider = parse_provider(path.rsplit("/", 1)[-1])
            if provider and len(digest) == 64:
                found.append({"path": path, "provider": provider[0], "abi": provider[1], "sha256": digest})
        return found
