"""The host files a container needs for RDMA: the NIC family's provider library, libibverbs.d, and what else."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from shakedown.desired.models import Provider, Rdma
from shakedown.desired.problems import Problem
from shakedown.state import NodeState
from shakedown.verbs import files_naming, libraries_of, library_of, with_abi


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
    library = library_of(provider, state.verbs)
    if library is None:
        others = ", ".join(each.path for each in libraries_of(provider, state.verbs)) or "nothing"
        expected = f"{provider.host_library}, of libibverbs' own ABI ({state.verbs.abi})"
        found.problems.append(Problem(name, f"verbs.providers ({provider.name})", others, expected))
        return found
    target = with_abi(provider.container_library, library.abi)
    found.mounts[library.path] = target
    if provider.install_as:
        found.copies[target] = with_abi(provider.install_as, library.abi)
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


def _config_folder(provider: Provider, state: NodeState) -> str | None:
    named = {str(PurePosixPath(file).parent) for file in files_naming(provider, state.verbs)}
    return next((folder for folder in provider.config_dirs if folder in named), None)
