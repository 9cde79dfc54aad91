"""Which provider library of a node's libibverbs is meant: the one answer for the check, the comparison of nodes and the
launch plan."""

from __future__ import annotations

from shakedown.desired.models import Provider
from shakedown.state.node import ProviderLibrary, Verbs, is_unreadable


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
