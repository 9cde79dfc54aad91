"""The host files a container needs for RDMA: the NIC family's provider library, libibverbs.d, and what else."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from shakedown.desired.models import Provider, Rdma
from shakedown.desired.problems import Problem
from shakedown.state import NodeState, ProviderLibrary


@dataclass
class HostFiles:
    """`mounts`: host path -> container path. `copies`: paths in the container, copied before the job starts."""

    mounts: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    why: str = ""
    problems: list[Problem] = field(default_factory=list)


def host_files(name: str, wanted: Rdma, state: NodeState) -> HostFiles:
    """What this node's containers get. Families that the image's own rdma-core serves get nothing."""
    found = HostFiles(mounts=dict(wanted.mounts))
    provider = wanted.provider
    if provider is None or provider.host_library is None or provider.container_library is None:
        return found
    library = _library(provider, state)
    if library is None:
        others = ", ".join(each.path for each in state.verbs.providers if each.provider == provider.name) or "nothing"
        expected = f"{provider.host_library}, whose ABI number is the image's libibverbs'"
        found.problems.append(Problem(name, f"verbs.providers ({provider.name})", others, expected))
        return found
    target = provider.container_library.format(abi=library.abi)
    found.mounts[library.path] = target
    if provider.install_as:
        found.copies[target] = provider.install_as.format(abi=library.abi)
    of = f"the provider of {wanted.family or provider.name}, ABI {library.abi}"
    found.why = f"{of}; host and container must have the very same file"
    folder = _config_folder(provider, state)
    if folder is None:
        expected = f"a file in {' or '.join(provider.config_dirs)} that names {provider.name}"
        actual = ", ".join(state.verbs.drivers) or "nothing"
        found.problems.append(Problem(name, "verbs.drivers", actual, expected))
    else:
        found.mounts[folder] = folder
    return found


def _library(provider: Provider, state: NodeState) -> ProviderLibrary | None:
    """The library at the family's path; of several ABIs, the one that the host's libibverbs loads."""
    path = provider.host_library or ""
    matching = [each for each in state.verbs.providers if each.path == path.format(abi=each.abi)]
    return min(matching, key=lambda each: each.abi != state.verbs.abi, default=None)


def _config_folder(provider: Provider, state: NodeState) -> str | None:
    named = {str(PurePosixPath(file).parent) for file, driver in state.verbs.drivers.items() if driver == provider.name}
    return next((folder for folder in provider.config_dirs if folder in named), None)
