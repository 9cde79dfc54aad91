"""Which RDMA devices of a node are meant, and which provider library: the one answer for checks, counters, launch plan.

Names say little, since udev renames devices (bnxt_re0, rocep65s0, ens1f0_rdma): the PCI vendor decides where it is
known, and names only where it is not, or where the site chose some of the devices by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from shakedown.desired.models import Provider, Rdma
from shakedown.state.node import ProviderLibrary, RdmaDevice, Verbs, is_unreadable


def of_family(wanted: Rdma, device: RdmaDevice) -> bool:
    """Whether a device is one of the NIC family's that the node should have.

    A device in software has no vendor, and one whose vendor could not be read none that is known: those go by name.
    `wanted.devices` is the site's own choice and always counts.
    """
    if wanted.devices and not _named(device, wanted.devices):
        return False
    if wanted.vendor and device.vendor:
        return device.vendor == wanted.vendor
    names = wanted.devices or wanted.usual_devices
    return not names or _named(device, names)


def devices_of(wanted: Rdma, devices: Sequence[RdmaDevice]) -> list[RdmaDevice]:
    """Return the devices that are meant, in their order.

    A virtual function shares the port of its physical function. It is another device only where that one is not here,
    as in a container that was given the virtual function alone.
    """
    here = {device.bdf for device in devices if device.bdf}
    return [device for device in devices if device.physical_function not in here and of_family(wanted, device)]


def others_of(wanted: Rdma, devices: Sequence[RdmaDevice]) -> list[RdmaDevice]:
    """Return the rest of the node's RDMA devices: of another family, not chosen, or a part of one that is counted."""
    chosen = {device.name for device in devices_of(wanted, devices)}
    return [device for device in devices if device.name not in chosen]


def none_there(wanted: Rdma) -> str:
    """Return the text of a finding where there is no device to judge."""
    family = f"of the family {wanted.family} " if wanted.family else ""
    return f"there is no RDMA device {family}to judge: see rdma_count"


def _named(device: RdmaDevice, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(device.name, pattern) for pattern in patterns)


def with_abi(path: str, abi: int) -> str:
    """Return a path of the desired state with the ABI number in place of {abi}."""
    return path.replace("{abi}", str(abi))


def expected_path(provider: Provider, abi: int) -> str | None:
    """Where the desired state wants the library on the host; None where any place of libibverbs' own will do."""
    return with_abi(provider.host_library, abi) if provider.host_library else None


def libraries_of(provider: Provider, verbs: Verbs) -> list[ProviderLibrary]:
    """Return the provider's libraries, of any ABI."""
    return [library for library in verbs.providers if library.provider == provider.name]


def library_of(provider: Provider, verbs: Verbs) -> ProviderLibrary | None:
    """Return the library that libibverbs loads and a container is given.

    It is of libibverbs' own ABI, at the path that the desired state names. None where there is none, or the ABI is not
    known.
    """
    if is_unreadable(verbs.abi):
        return None
    path = expected_path(provider, verbs.abi)
    own = [library for library in libraries_of(provider, verbs) if library.abi == verbs.abi]
    return next((library for library in own if path in (None, library.path)), None)


def files_naming(provider: Provider, verbs: Verbs) -> list[str]:
    """Return the files of libibverbs.d that name the provider."""
    return [path for path, driver in verbs.drivers.items() if driver == provider.name]


def library_digest(provider: Provider, verbs: Verbs) -> str | None:
    """Return the digest of that library; None where it is not known."""
    library = library_of(provider, verbs)
    return None if library is None or is_unreadable(library.sha256) else library.sha256
