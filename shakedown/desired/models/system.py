"""What a node needs besides its settings."""

from typing import Literal

from pydantic import field_validator

from shakedown.desired.models.section import Section, key
from shakedown.desired.models.values import Positive
from shakedown.desired.names import NodePath
from shakedown.desired.sizes import parse_room


class ContainerEngine(Section):
    """The engine that runs containers. `"docker"` alone stands for `{"name": "docker"}`."""

    name: Literal["any", "docker", "podman"] = key("any", "which engine runs containers", "docker")
    install: bool = key(False, "whether a deploy installs the distribution's package where the engine is missing", True)


class System(Section):
    """What the node needs besides tuning."""

    container_engine: ContainerEngine | None = key(None, "the engine that runs containers", {"name": "docker"})
    clock_synchronised: bool | None = key(None, "whether the node's clock is kept by NTP or PTP", True)
    clock_skew_s: float | None = key(None, "how far the clocks of an inventory's nodes may be apart", 30.0, unit="s")
    memory: Positive | None = key(None, "RAM that there must be at least", "32G", unit="bytes")
    mpi: Literal["installed"] | None = key(
        None, "MPI on the node itself, for jobs that are started with it", "installed"
    )
    mounts_answer: bool | None = key(None, "whether every mounted file system answers within 2 s", True)
    drive_health: bool | None = key(
        None, "whether NVMe and SMART health of the node's own drives is read, as root, and judged", True
    )
    disk_free: dict[NodePath, int] = key({}, "free room by mount or path", {"/": "100G"}, unit="bytes")
    reboot: Literal["never", "when needed"] = key(
        "never", "whether a deploy may reboot a node for what takes effect at boot only", "when needed"
    )
    reboot_at_once: Positive = key(1, "nodes that may be down together", 4, unit="nodes")
    reboot_timeout_s: Positive = key(900, "time in which a node has to be back", 900, unit="s")
    kernel_log_clean: bool | None = key(
        None, "no line of a fault (docs/reference/catalogue.md) in the kernel's log since boot", True
    )

    @field_validator("memory", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_room(value)

    @field_validator("disk_free", mode="before")
    @classmethod
    def _sizes(cls, value: object) -> object:
        return {key: parse_room(size) for key, size in value.items()} if isinstance(value, dict) else value
