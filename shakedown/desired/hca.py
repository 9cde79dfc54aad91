"""The one answer which RDMA devices of a node are meant, and which provider library. Names say little, since udev
renames devices: the PCI vendor decides where it is known, unless the site chose devices by name."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from shakedown.desired.models import Provider, Rdma
from shakedown.state.node import ProviderLibrary, RdmaDevice, Verbs, is_unreadable


def of_family(wanted: Rdma, device: RdmaDevice) -> bool:
    """Return whether a device is of the wanted NIC family: by vendor, or by name where no vendor is known (as of
    software). `wanted.devices` always counts."""
    if wanted.devices and not _named(device, wanted.devices):
        return False
    if wanted.vendor and device.vendor:
        return device.vendor == wanted.vendor
    names = wanted.devices or wanted.usual_devices
    return not names or _named(device, names)


def devices_of(wanted: Rdma, devices: Sequence[RdmaDevice]) -> list[RdmaDevice]:
    """Return the meant devices in order. A virtual function counts only without its physical one."""
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
    """Return the container's library: of libibverbs' own ABI, at the wanted path; None: not known, or not there."""
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
