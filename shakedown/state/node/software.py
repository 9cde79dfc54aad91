"""What jobs find installed: verbs, containers, libraries."""

from typing import Literal

from pydantic import Field

from shakedown.state.node.reading import NOT_READ, Part, Reading


class ProviderLibrary(Part):
    """One libibverbs provider: lib<provider>-rdmav<abi>.so."""

    path: str
    provider: str  # "bnxt_re"
    abi: int  # 34
    sha256: Reading[str]
    target: str | None = None  # where a symbolic link leads


class Verbs(Part):
    """libibverbs on the host: the library, its provider ABI, the providers and libibverbs.d."""

    library: Reading[str]
    abi: Reading[int]  # IBVERBS_PRIVATE_<n> of the library: the <n> that a provider's name must carry
    providers: list[ProviderLibrary]
    drivers: dict[str, str]  # file of libibverbs.d -> the driver it names


class Image(Part):
    """One image in the container engine's store."""

    id: str  # "sha256:..."
    tags: list[str]
    digests: list[str]  # "name@sha256:..."
    size_bytes: int
    labels: dict[str, str] = Field({})  # those that name a version


class Containers(Part):
    """The container engine that answers (docker first, then podman)."""

    engine: Reading[Literal["docker", "podman"]]
    version: Reading[str]
    root: Reading[str]  # where it stores images
    images: Reading[list[Image]]
    running: Reading[int]


class Software(Part):
    """What a job finds besides ROCm itself."""

    mpi: Reading[str] = NOT_READ  # "Open MPI (/usr/bin/mpirun)"
    rccl: Reading[str] = NOT_READ  # "2.22.3 (/opt/rocm/lib/librccl.so.1)"
