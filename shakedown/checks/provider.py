"""The libibverbs provider on the host. With the wrong one libibverbs warns, exits 0 and shows no devices, and the job
falls back to TCP; so the files themselves are judged."""

from __future__ import annotations

from typing import Any

from shakedown.checks import check
from shakedown.checks.compare import unknown
from shakedown.checks.several import missing, nothing_there
from shakedown.desired.hca import expected_path, files_naming, libraries_of
from shakedown.desired.models import DesiredState, Provider
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import NodeState, ProviderLibrary, is_unreadable


@check("provider_library", "rdma.provider", waivable=False)
def provider_library(desired: DesiredState, state: NodeState) -> Comparison | None:
    """One provider library of the family, of libibverbs' own ABI number, at the place the container mounts it from."""
    provider = desired.rdma.provider
    if provider is None:
        return None
    verbs = state.verbs
    if not desired.rdma.count:
        return nothing_there(provider.name, count=0, why="")
    if missing(verbs.library):
        remedy = Remedy(text="install libibverbs (libibverbs1 on Debian, libibverbs on RHEL)")
        evidence = str(verbs.library)
        return Comparison(verdict=Verdict.FAIL, wanted="libibverbs", evidence=evidence, remedy=remedy)
    if is_unreadable(verbs.abi):
        return unknown(f"lib{provider.name}-rdmav<abi>.so", verbs.abi)
    wanted = expected_path(provider, verbs.abi) or f"lib{provider.name}-rdmav{verbs.abi}.so"
    found = libraries_of(provider, verbs)
    verdict, evidence = _judge(provider, verbs.abi, found)
    own = [library for library in found if library.abi == verbs.abi]
    actual = ", ".join(library.path for library in own or found) or "none"
    if provider.sha256 or (verdict is not Verdict.OK and actual == wanted):  # the path is right, so it tells nothing
        wanted += f" of ABI {verbs.abi}" + (f", sha256 {provider.sha256}" if provider.sha256 else "")
        actual = ", ".join(_shown(library) for library in own or found) or "none"
    return Comparison(
        verdict=verdict,
        wanted=wanted,
        actual=None if verdict is Verdict.UNKNOWN else actual,
        evidence=evidence,
        remedy=None if verdict is Verdict.OK else _remedy(provider, verbs.abi, found),
    )


@check("provider_driver", "rdma.provider")
def provider_driver(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Check that a file of libibverbs.d names the provider: without it libibverbs never looks for the library."""
    provider = desired.rdma.provider
    if provider is None or not provider.config_dirs:
        return None
    if not desired.rdma.count:
        return nothing_there(f"driver {provider.name}", count=0, why="")
    files = files_naming(provider, state.verbs)
    remedy = Remedy(
        text=f"write {provider.config_dirs[0]}/{provider.name}.driver",
        operation="provider.driver",
        arguments={"provider": provider.name, "folder": provider.config_dirs[0]},
    )
    return Comparison(
        verdict=Verdict.OK if files else Verdict.DRIFT,
        wanted=f"driver {provider.name}",
        actual=", ".join(files) or "not named",
        evidence=f"files of libibverbs.d: {', '.join(state.verbs.drivers) or 'none'}",
        remedy=None if files else remedy,
    )


def _shown(library: ProviderLibrary) -> str:
    """Name a library with what tells it from another at the same path."""
    if missing(library.sha256):
        return f"{library.path} -> {library.target}"
    return f"{library.path} of ABI {library.abi}, sha256 {library.sha256}"


def _judge(provider: Provider, abi: int, found: list[ProviderLibrary]) -> tuple[Verdict, str]:
    """Return the verdict with its reason. Of several files with libibverbs' ABI only equal ones are harmless: which of
    two different ones is loaded depends on the order of folders."""
    bad = Verdict.DRIFT if provider.source else Verdict.FAIL
    own = [library for library in found if library.abi == abi]
    if not found:
        return bad, f"no lib{provider.name}-rdmav*.so on this node"
    if not own:
        numbers = ", ".join(str(library.abi) for library in found)
        return bad, f"ABI {numbers}, but libibverbs loads {abi} only: it would show no devices"
    dangling = [library for library in own if missing(library.sha256)]
    if dangling:
        links = ", ".join(f"{library.path} -> {library.target}" for library in dangling)
        return bad, f"a symbolic link that leads nowhere: {links}"
    digests = {library.path: library.sha256 for library in own}
    unread = [f"{path}: {digest}" for path, digest in digests.items() if is_unreadable(digest)]
    if unread:
        return Verdict.UNKNOWN, "; ".join(unread)
    shown = "; ".join(f"{path} sha256 {digest}" for path, digest in digests.items())
    if len(set(digests.values())) > 1:
        return (
            Verdict.FAIL,
            f"{len(own)} different libraries of one provider, and the order of folders decides: {shown}",
        )
    path = expected_path(provider, abi)
    if path and path not in digests:
        return bad, f"not at {path}, which is mounted into the container: {shown}"
    if provider.sha256 and provider.sha256 not in digests.values():
        return bad, f"another build than the site's (sha256 {provider.sha256}): {shown}"
    stray = [library.path for library in found if library.abi != abi]
    return Verdict.OK, shown + (f"; never loaded (another ABI): {', '.join(stray)}" if stray else "")


def _remedy(provider: Provider, abi: int, found: list[ProviderLibrary]) -> Remedy:
    path = expected_path(provider, abi)
    own = {library.path for library in found if library.abi == abi}
    if path and provider.source and own <= {path}:
        arguments: dict[str, Any] = {"source": provider.source, "path": path}
        return Remedy(text=f"put {provider.source} at {path}", operation="provider.library", arguments=arguments)
    if len(own) > 1:
        return Remedy(text="keep the one that belongs to the NIC's firmware and move the other out of libibverbs' way")
    text = f"install the vendor's {provider.name} library built for ABI {abi}"
    if path and own:
        text += f", or set rdma.provider.host_library to {', '.join(own)}"
    return Remedy(text=f"{text}, or name the site's file as rdma.provider.source")
