"""A reading, and what is read of the machine: its operating system and the software that jobs find installed.

A reading is a value, or the reason why there is none.
"""

from typing import Annotated, Any, Literal, TypeVar, Union

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny
from typing_extensions import TypeIs

Why = Literal["missing", "not permitted", "timed out", "malformed", "failed"]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True, allow_inf_nan=False)


class Unreadable(Part):
    """Why there is no value: no such file or tool (`missing`), no permission, no answer in time, output that makes no
    sense, or a tool that reported an error (`failed`). `detail` names the file or the command, and its words."""

    unreadable: Why
    detail: str = ""

    def __str__(self) -> str:
        return f"unreadable ({self.unreadable}{': ' + self.detail if self.detail else ''})"


T = TypeVar("T")
# Nearly every reading could be taken, so that is tried first: an Unreadable fits dictionaries of texts alone.
Reading = Annotated[Union[T, Unreadable], SerializeAsAny(), Field(union_mode="left_to_right")]  # noqa: UP007 - as T is
Texts = Annotated[Unreadable | dict[str, str], SerializeAsAny(), Field(union_mode="left_to_right")]


def is_unreadable(reading: Any) -> TypeIs[Unreadable]:
    """Tell whether the reading could not be taken."""
    return reading.__class__ is Unreadable  # a quarter of isinstance's time, 1,500 times for each node


NOT_READ = Unreadable(unreadable="failed", detail="the probe that took this state did not read it")


class Probe(Part):
    """The probe itself: who it ran as and what it cost."""

    version: str  # digest of the bundle, hex
    python: str  # "3.11.7"
    user: str
    uid: int
    wall_s: float
    cpu_s: float


class System(Part):
    """/etc/os-release, uname and DMI."""

    hostname: str
    boot_id: Reading[str]  # /proc/sys/kernel/random/boot_id
    taken_at: str  # UTC, ISO 8601
    epoch_s: float  # the node's clock when the reading was taken, seconds since 1970 UTC
    monotonic_s: Reading[float] = NOT_READ  # CLOCK_MONOTONIC then, by which the kernel's log counts, in seconds
    os_id: Reading[str]  # "debian", "ubuntu", "rhel", "rocky", ...
    os_version: Reading[str]
    os_name: Reading[str]  # PRETTY_NAME
    family: Literal["debian", "rhel", "other"]  # from ID and ID_LIKE
    kernel: str  # uname -r
    arch: str
    bios_version: Reading[str]  # /sys/class/dmi/id/bios_version
    product: Reading[str]  # /sys/class/dmi/id/product_name
    board_serial: Reading[str] = NOT_READ  # /sys/class/dmi/id/board_serial; needs root
    machine_id: Reading[str] = NOT_READ  # /etc/machine-id
    host_key: Reading[str] = NOT_READ  # the public key of sshd, "ssh-ed25519 AAAA..."
    service_manager: Literal["systemd", "other"]  # /run/systemd/system


class Setting(Part):
    """A setting with what runs now and what the node would come up with (None: nothing is written down)."""

    running: Reading[str]
    persisted: Reading[str | None]


class Cmdline(Part):
    """The kernel command line: running (/proc/cmdline) and as the boot loader holds it (GRUB's files)."""

    running: Reading[list[str]]
    persisted: Reading[list[str]]
    loader: Literal["grub-dropin", "grub-default", "grubby", "none"]  # how persistence can be changed here


class Cpu(Part):
    """/proc/cpuinfo and /sys/devices/system/cpu."""

    model: Reading[str]
    count: int
    vendor: Reading[str]  # "AuthenticAMD", "GenuineIntel"
    governors: Reading[dict[str, int]]  # governor -> number of CPUs; missing where the kernel has no cpufreq
    c2_enabled: Reading[int]  # CPUs whose idle state 2 is not disabled; missing where there is no cpuidle state2


class Numa(Part):
    """/sys/devices/system/node and kernel.numa_balancing."""

    nodes: Reading[int]
    balancing: Setting  # running "missing" = a kernel without it


class Memory(Part):
    """psutil, /proc/meminfo and /sys/kernel/mm."""

    total_bytes: int
    available_bytes: int
    load_1m: float
    thp: Setting  # /sys/kernel/mm/transparent_hugepage/enabled, the bracketed word
    hugepages_total: Reading[int]
    hugepage_kb: Reading[int]


class ResourceLimits(Part):
    """Limits of the user the probe ran as: soft values as text ("unlimited" or a number), and what is persisted."""

    memlock: Setting  # kilobytes or "unlimited"
    nofile: Setting


class Account(Part):
    """The user that would run jobs, and the groups that matter."""

    user: str
    home: str | None = None  # None: unknown
    groups: list[str]  # groups of the session, by name (or number where unnamed)
    at_login: list[str]  # groups that a new session has by /etc/group and /etc/passwd
    members: dict[str, list[str]]  # group -> members, for render, video, docker; a group that does not exist is absent


class Modules(Part):
    """/proc/modules, and what is loaded at every boot (/etc/modules-load.d, /etc/modules)."""

    loaded: Reading[list[str]]
    persisted: list[str]
    blacklisted: list[str]  # modprobe.d and modprobe.blacklist= on the command line
    builtin: list[str] = Field(default_factory=list)


class Clock(Part):
    """timedatectl or chronyc."""

    synchronised: Reading[bool]
    service: Reading[str]
    offset_s: Reading[float]


class KernelRecord(Part):
    """One record of the kernel's log."""

    number: int  # /dev/kmsg's sequence number
    priority: int  # 0 (the worst) to 7
    seconds: float  # since boot
    message: str


class KernelLog(Part):
    """Records of the kernel's log since boot that may report a fault: shakedown/node/kernel_log.py chooses them."""

    records: Reading[list[KernelRecord]]
    left_out: int = 0  # of the same kind, or beyond the limit


class BootUnit(Part):
    """Our systemd unit: the settings that have to be made at every boot."""

    enabled: Reading[bool]
    settings: Texts  # of /etc/shakedown/boot.conf


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
