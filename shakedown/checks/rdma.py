"""The RDMA devices (how many, their ports, links, GIDs and firmware), and the libibverbs provider on the host.

With the wrong provider libibverbs warns, exits 0 and shows no devices, and the job falls back to TCP; so the files
themselves are judged.
"""

from __future__ import annotations

from typing import Any

from shakedown.checks import NIC_MODULES, NICS, check_wanted
from shakedown.checks.compare import (
    NO_DEVICE,
    common,
    compare_several,
    comparison,
    missing,
    nothing_there,
    unknown,
)
from shakedown.checks.per_device import register
from shakedown.desired.hca import devices_of, expected_path, files_naming, libraries_of, none_there, others_of
from shakedown.desired.models import DesiredState, Provider
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.gid import NoGid, addresses_of, gid_index
from shakedown.state.node import NodeState, ProviderLibrary, is_unreadable


@check_wanted("rdma_count", "rdma.count", follows=NIC_MODULES)
def rdma_count(desired: DesiredState, state: NodeState, wanted: int) -> Comparison | None:
    """As many devices of the NIC family as the node should have."""
    if is_unreadable(state.rdma):
        return unknown(wanted, state.rdma, evidence="/sys/class/infiniband")
    found = [device.name for device in devices_of(desired.rdma, state.rdma)]
    others = [device.name for device in others_of(desired.rdma, state.rdma)]
    evidence = ", ".join(found) or "no device of the family in /sys/class/infiniband"
    if others:
        evidence += f"; not counted for the family {desired.rdma.family}: {', '.join(others)}"
    right = len(found) == wanted
    text = "compare `lspci` and `rdma link` with a healthy node; the driver may not be loaded, or the NIC is gone"
    return comparison(Verdict.OK if right else Verdict.FAIL, wanted, len(found), evidence, Remedy(text=text))


register(__name__, "rdma_state", "rdma_rate", "rdma_link")


@check_wanted("rdma_gid", "rdma.count", follows=(*NICS, "rdma_state*"))
def rdma_gid(desired: DesiredState, state: NodeState, _wanted: int) -> Comparison | None:
    """Every device has a RoCE v2 GID of its interface's IPv4 address, or of a routed IPv6 one where it has none. Which
    index that is, the table decides; that it differs from the published one, or from device to device, is noted as
    evidence and is no fault."""
    wanted = "a RoCE v2 GID of the interface's address"
    if is_unreadable(state.rdma):
        return unknown(wanted, state.rdma)
    if is_unreadable(state.interfaces):
        return unknown(wanted, state.interfaces)
    devices = devices_of(desired.rdma, state.rdma)
    results = {device.name: gid_index(device, addresses_of(device, state.interfaces)) for device in devices}
    found = {name: index for name, index in results.items() if not isinstance(index, NoGid)}
    reasons = [result for result in results.values() if isinstance(result, NoGid)]
    evidence = [] if devices else [none_there(desired.rdma)]
    evidence += [str(reason) for reason in reasons] + _remarks(found, desired.rdma.usual_gid_index)
    without = {name: "none" for name, result in results.items() if isinstance(result, NoGid) and not result.unread}
    verdict = Verdict.FAIL if without else Verdict.UNKNOWN if reasons or not found else Verdict.OK
    actual = without or (common({name: f"index {index}" for name, index in found.items()}) if found else None)
    text = "give the interface named an address (GIDs follow addresses); fe80 GIDs are not used, they hang gloo"
    return comparison(verdict, wanted, actual, "; ".join(evidence), Remedy(text=text) if without else NO_DEVICE)


@check_wanted("rdma_firmware", "rdma.count", follows=NICS)
def rdma_firmware(desired: DesiredState, state: NodeState, count: int) -> Comparison | None:
    """Check that the NICs of one node run one firmware."""
    if is_unreadable(state.rdma):
        return unknown("equal", state.rdma)
    versions = {device.name: device.firmware for device in devices_of(desired.rdma, state.rdma)}
    read = [version for version in versions.values() if not is_unreadable(version)]
    usual = max(read, key=read.count, default="equal on all")
    remedy = Remedy(text="flash the devices named to the firmware of the others, with the vendor's tool")
    if not versions:
        return nothing_there(usual, count=count, why=none_there(desired.rdma))
    return compare_several(usual, versions, usual.__eq__, remedy=remedy)


def _remarks(found: dict[str, int], usual: int | None) -> list[str]:
    different = sorted(set(found.values()))
    remarks = []
    if len(different) > 1:
        remarks.append("the index differs from device to device: " + ", ".join(f"{k} {v}" for k, v in found.items()))
    if usual is not None and different and different != [usual]:
        remarks.append(f"published settings for this family say {usual}; the table decides")
    return remarks


@check_wanted("provider_library", "rdma.provider", waivable=False)
def provider_library(desired: DesiredState, state: NodeState, provider: Provider) -> Comparison | None:
    """One provider library of the family, of libibverbs' own ABI number, at the place the container mounts it from."""
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
    return comparison(
        verdict, wanted, None if verdict is Verdict.UNKNOWN else actual, evidence, _remedy(provider, verbs.abi, found)
    )


@check_wanted("provider_driver", "rdma.provider")
def provider_driver(desired: DesiredState, state: NodeState, provider: Provider) -> Comparison | None:
    """Check that a file of libibverbs.d names the provider: without it libibverbs never looks for the library."""
    if not provider.config_dirs:
        return None
    if not desired.rdma.count:
        return nothing_there(f"driver {provider.name}", count=0, why="")
    files = files_naming(provider, state.verbs)
    remedy = Remedy(
        text=f"write {provider.config_dirs[0]}/{provider.name}.driver",
        operation="provider.driver",
        arguments={"provider": provider.name, "folder": provider.config_dirs[0]},
    )
    verdict, actual = Verdict.OK if files else Verdict.DRIFT, ", ".join(files) or "not named"
    evidence = f"files of libibverbs.d: {', '.join(state.verbs.drivers) or 'none'}"
    return comparison(verdict, f"driver {provider.name}", actual, evidence, remedy)


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
