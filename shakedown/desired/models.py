"""The typed desired state. A field that is None (or empty) is not asked for, so nothing is checked or changed for it.

Every model refuses unknown keys and wrong types: a site's layer with a typing error must never be read as "not asked
for". Figures come from the profiles (`profiles/*.toml`), which name their sources.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator
from pydantic.config import JsonDict

from shakedown.desired.amounts import Amount, Some
from shakedown.desired.names import DevicePattern, Group, Module, MountPath, NodePath, Parameter, SysctlKey, Text, Word
from shakedown.desired.sizes import parse_size
from shakedown.node import lossless, sysctl
from shakedown.node.settings import SETTINGS
from shakedown.state.images import parse

Positive = Annotated[int, Field(gt=0)]


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("the name of a variable: letters, digits and underscores, no digit first")
    return name


def _line(value: str) -> str:
    if any(mark in value for mark in "\n\r\0"):
        raise ValueError("one line: an engine's file of variables has one on each")
    return value


Environment = dict[Annotated[str, AfterValidator(_variable)], Annotated[str, AfterValidator(_line)]]


def _volume(text: str) -> str:
    """A path of `docker run --volume`, which has colons between its parts, or of --mount, which has commas."""
    if not text.startswith(("/", "{home}")) or any(mark in text for mark in ",\n\r\0"):
        raise ValueError("an absolute path, without comma")
    return text


def _source(text: str) -> str:
    if ":" in text:
        raise ValueError("an absolute path, without colon")
    return _volume(text)


def _target(text: str) -> str:
    path, _, mode = text.partition(":")
    if mode and not set(mode.split(",")) <= {"ro", "rw", "z", "Z", "rshared", "rslave", "rprivate", "shared", "slave"}:
        raise ValueError("an absolute path, with nothing behind a colon but ro, rw, z, Z or a propagation")
    _volume(path)
    return text


# Host path -> container path, which may have `:ro` and the like behind it.
Volumes = dict[Annotated[str, AfterValidator(_source)], Annotated[str, AfterValidator(_target)]]


def _interface(name: str) -> str:
    """As dev_valid_name of Linux' net/core/dev.c has it (IFNAMSIZ is 16 with the final zero), and without the marks
    of NCCL_SOCKET_IFNAME's own language."""
    if not re.fullmatch(r"[^\s/:,=^]{1,15}", name) or name in (".", ".."):
        raise ValueError("the name of one network interface")
    return name


Interface = Annotated[str, AfterValidator(_interface)]


# Slurm's own directives must not be undone: which nodes, and all of them for us alone.
_OURS_OF_SBATCH = {"nodelist", "nodes", "exclude", "ntasks", "ntasks-per-node", "wrap", "array", "output", "error"}
_OURS_OF_SBATCH |= {"job-name", "parsable", "export", "wait", "chdir"}


def _option(text: str) -> str:
    if not re.fullmatch(r"--[a-z][a-z-]{1,40}(=[^\x00-\x1f]{0,400})?", text):
        raise ValueError('a long option of sbatch with its value behind "=", as "--qos=high"')
    if text[2:].split("=")[0] in _OURS_OF_SBATCH:
        raise ValueError("another option: this one is set for every job")
    return text


Option = Annotated[str, AfterValidator(_option)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def key(
    default: Any,
    description: str,
    example: Any = None,
    *,
    unit: str | None = None,
    source: str | None = None,
    ge: int | None = None,
    max_length: int | None = None,
) -> Any:
    """A key of the desired state with what docs/configuration.md says of it: what it asks for, a value that a site may
    write, the unit of its number, and the document (shakedown/recipes/documents.toml) that it comes from. `...` as the
    default: it has to be given."""
    more: JsonDict = {name: value for name, value in (("unit", unit), ("source", source)) if value is not None}
    examples = None if example is None else [example]
    extra = more or None
    return Field(
        default, description=description, examples=examples, json_schema_extra=extra, ge=ge, max_length=max_length
    )


def setting(name: str) -> Any:
    """A key for a host setting, of which its module in shakedown/node/settings says what it is."""
    known = SETTINGS[name]
    return key(None, known.doc, False if known.switch else known.example, unit=known.unit, source=known.document)


class Tuning(Section):
    """Host settings."""

    numa_balancing: bool | None = setting("numa_balancing")
    nmi_watchdog: bool | None = setting("nmi_watchdog")
    cmdline: list[Parameter] = key(
        [],
        'kernel parameters, merged into what is there; "{cpu}_iommu=on" becomes amd_ or intel_ by the CPU\'s vendor',
        ["iommu=pt", "{cpu}_iommu=on"],
        source="system-optimization",
    )
    cpu_governor: Word | None = setting("cpu_governor")
    c2: Literal["disabled"] | None = setting("c2")
    thp: Literal["always", "madvise", "never"] | None = setting("thp")
    pcie_acs: Literal["off"] | None = setting("pcie_acs")
    memlock: Literal["unlimited"] | Positive | None = key(
        None, "locked memory that a session of the user who runs jobs may have", "unlimited", unit="KiB"
    )
    nofile: Positive | None = key(
        None, "open files that a session of the user who runs jobs may have", 1048576, unit="files"
    )
    groups: list[Group] = key([], "groups of the user who runs jobs", ["render", "video"])
    sysctl: dict[SysctlKey, int | Text] = key(
        {},
        "kernel settings by their sysctl names, now and at boot",
        {"net.ipv4.conf.all.rp_filter": 2},
        max_length=sysctl.MOST,
    )
    modules: list[Module] = key(
        [], "kernel modules that are loaded now and at every boot, besides those of gpu and rdma", ["nvme_tcp"]
    )


class Gpu(Section):
    """The GPUs of a node. `profile` names a file of profiles/gpu; count 0 is a node without GPUs."""

    profile: Text = key(..., 'the GPU profile, a file of profiles/gpu; a site writes gpu = "mi300x"', "mi300x")
    name: Text = key(..., "the model's name in findings", "AMD Instinct MI300X")
    count: int = key(..., "GPUs of a node; 0 is a node without", 8, ge=0)
    pci_ids: list[Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]] = key(
        [], "PCI ids, vendor:device, that the model has", ["1002:74a1"]
    )
    vram_bytes: int | None = key(None, "memory of one GPU", "192G", unit="bytes")
    link_gts: float | None = key(None, "PCIe rate of each lane", 32.0, unit="GT/s")
    link_width: Positive | None = key(None, "PCIe lanes of a GPU", 16, unit="lanes")
    vram_used_bytes: Positive | None = key(
        None,
        "memory in use on a GPU without a job, from which the GPU is not idle",
        "2G",
        unit="bytes",
        source="primus-node-smoke",
    )
    corrected_errors: int | None = key(
        None,
        "corrected memory errors of a GPU since its driver was loaded, above which there is advice",
        0,
        unit="errors",
        source="node-scraper",
        ge=0,
    )
    pcie_replays: int | None = key(
        None,
        "repeated packets of a GPU's PCIe link, above which there is advice",
        0,
        unit="packets",
        source="node-scraper",
        ge=0,
    )
    xgmi_links: Positive | None = key(
        None, "XGMI links of one GPU that are up, to the others of its board", 7, unit="links"
    )
    compute_partition: Word | None = key(None, "compute partition of every GPU", "SPX", source="system-optimization")
    memory_partition: Word | None = key(None, "memory partition of every GPU", "NPS1", source="system-optimization")
    rocm_min: Annotated[str, Field(pattern=r"^\d+\.\d+(\.\d+)?$")] | None = key(
        None, "oldest version of ROCm on the node that will do", "6.3.0"
    )
    rccl: Literal["installed"] | None = key(
        None, "RCCL on the node itself, for jobs that run without a container", "installed"
    )
    modules: list[Module] = key(
        [], "the driver's kernel modules; with them /dev/kfd and /dev/dri are wanted", ["amdgpu"]
    )
    no_throttling: list[Literal["power", "current", "thermal", "vr_thermal", "hbm_thermal", "prochot"]] = key(
        [],
        "reasons for which no GPU may be throttled in the steady iterations of a job; for others it is told",
        ["thermal", "hbm_thermal", "prochot"],
    )
    environment: Environment = key(
        {},
        "variables of every job on these GPUs; those of the NIC family, the options and "
        "smoke.environment win over them",
        {"HSA_NO_SCRATCH_RECLAIM": "1"},
    )

    @field_validator("vram_bytes", "vram_used_bytes", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value)


class Provider(Section):
    """The libibverbs provider of a NIC family, on the host and in the container."""

    name: Module = key(..., "the driver that libibverbs.d names, and lib<name>-rdmav<abi>.so", "bnxt_re")
    host_library: MountPath | None = key(
        None,
        "the library's path on the host; {abi} stands for libibverbs' provider ABI",
        "/usr/local/lib/libbnxt_re-rdmav{abi}.so",
    )
    source: Text | None = key(
        None,
        "the site's file on the controller, put at host_library where another or none stands",
        "/srv/lib/libbnxt_re-rdmav34.so",
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = key(
        None, "of host_library", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    )
    container_library: MountPath | None = key(
        None,
        "where the host's file is mounted in the container",
        "/usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav{abi}.so.host",
    )
    install_as: MountPath | None = key(
        None,
        "where the mounted file is copied to inside the container before the job starts",
        "/usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav{abi}.so",
    )
    config_dirs: list[MountPath] = key(
        [], "folders of libibverbs.d on the host: the first that exists is mounted", ["/etc/libibverbs.d"]
    )


def _congestion(name: str) -> str:
    if name not in lossless.PARAMETERS:
        raise ValueError(f"one of those that are read: {', '.join(lossless.PARAMETERS)}")
    return name


Priority = Annotated[int, Field(ge=0, le=7)]


def _dscp(text: str) -> str:
    if text not in map(str, range(64)):
        raise ValueError("a DSCP as text, 0 to 63")
    return text


Dscp = Annotated[str, AfterValidator(_dscp)]


class Rdma(Section):
    """The RDMA devices of a node. `family` names a file of profiles/nic; None where the node has none."""

    family: Text | None = key(None, 'the NIC family, a file of profiles/nic; a site writes nic = "thor2"', "thor2")
    count: int = key(0, "RDMA devices of a node", 8, ge=0)
    devices: list[DevicePattern] = key(
        [], "only these devices, by name, shell style; empty: all of the family", ["bnxt_re[0-7]"]
    )
    usual_devices: list[DevicePattern] = key(
        [], "the family's own names, where the vendor of a device is not known", ["bnxt_re*"]
    )
    vendor: Annotated[str, Field(pattern=r"^[0-9a-f]{4}$")] | None = key(None, "PCI vendor id of the family", "14e4")
    rate_gbps: float | None = key(None, "rate of every port", 400.0, unit="Gb/s")
    mtu: Positive | None = key(None, "MTU of the devices' network interfaces", 9000, unit="bytes")
    link_gts: float | None = key(None, "PCIe rate of each lane of the NIC", 32.0, unit="GT/s")
    link_width: Positive | None = key(None, "PCIe lanes of the NIC", 16, unit="lanes")
    max_read_request: Positive | None = key(
        None, "PCIe MaxReadReq of the NIC, now and at every boot", 4096, unit="bytes"
    )
    usual_gid_index: int | None = key(
        None, "GID index that is published for the family: shown when the node's own differs; the node's own is used", 3
    )
    pfc: list[Priority] | None = key(None, "priorities with priority flow control on every port, and no others", [3])
    dscp: dict[Dscp, Priority] = key(
        {}, "priority that packets with a DSCP are given on every port; other DSCPs may have any", {"26": 3, "48": 7}
    )
    congestion: dict[Annotated[str, AfterValidator(_congestion)], Annotated[int, Field(ge=0)]] = key(
        {}, "congestion control (ECN, DCQCN) of every port, by the driver's own names", {"enable_cc": 1}
    )
    usual_pfc: list[Priority] = key([], "what is published for the family: told where pfc asks for nothing", [3])
    usual_dscp: dict[Dscp, Priority] = key({}, "the same for dscp", {"26": 3, "48": 7})
    modules: list[Module] = key([], "kernel modules of the NIC and of RDMA", ["bnxt_re", "ib_uverbs", "rdma_ucm"])
    environment: Environment = key({}, "variables of every job over these NICs", {"RDMAV_DRIVERS": "bnxt_re"})
    provider: Provider | None = key(None, "the libibverbs provider library of the family", {"name": "bnxt_re"})
    mounts: dict[MountPath, MountPath] = key(
        {},
        "further files that the container needs: host path -> container path",
        {"/usr/lib/libionic.so": "/usr/lib/libionic.so"},
    )


class Image(Section):
    """A container image: `name:tag`, `name@sha256:...` or `name:tag@sha256:...`."""

    reference: Text = key(
        ..., 'the image; a site writes images = {"megatron": "name:tag"}', "rocm/megatron-lm:v25.5_py310"
    )
    insecure: bool = key(
        False, "a registry without TLS, or with a certificate that no authority of the node has signed", True
    )
    ca_file: Text | None = key(None, "the registry's own certificate, a file on the controller", "/srv/registry/ca.crt")
    username: Text | None = key(None, "account at the registry", "robot")
    password_file: Text | None = key(
        None, "file of one line on the controller, for its owner alone (chmod 600)", "~/.config/registry.password"
    )
    password_env: Text | None = key(
        None, "variable of the controller with the password, in place of password_file", "REGISTRY_PASSWORD"
    )
    size_bytes: int | None = key(
        None, "unpacked size, where the registry cannot be asked: disk room is checked against it", "60G", unit="bytes"
    )

    @field_validator("reference")
    @classmethod
    def _reference(cls, value: str) -> str:
        try:
            parse(value)
        except ValueError:
            raise ValueError("name:tag, name@sha256:... or name:tag@sha256:...") from None
        return value

    @field_validator("size_bytes", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value)


class Mirror(Section):
    """A mirror or pull-through cache of one registry. What it gives has the digest that is wanted, or is refused."""

    address: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9._/-]+)?$")] = key(
        ..., "host[:port][/prefix]; the prefix goes in front of the image's own path", "mirror.rack7:5000/dockerhub"
    )
    insecure: bool = key(False, "without TLS, or with a certificate that no authority of the node has signed", True)
    ca_file: Text | None = key(None, "its certificate, a file on the controller", "/srv/mirror/ca.crt")
    username: Text | None = key(None, "account at the mirror", "robot")
    password_file: Text | None = key(
        None, "file of one line on the controller, for its owner alone (chmod 600)", "~/.config/mirror.password"
    )
    password_env: Text | None = key(
        None, "variable of the controller with the password, in place of password_file", "MIRROR_PASSWORD"
    )


class Pulls(Section):
    """How images come to the nodes."""

    at_once: Positive = key(8, "nodes that pull from one registry or mirror at a time", 8, unit="nodes")
    mirrors: dict[Text, Mirror] = key(
        {},
        "registry -> the site's mirror of it; the registry itself is asked where the mirror does not answer",
        {"docker.io": {"address": "mirror.rack7:5000"}},
    )


class System(Section):
    """What the node needs besides tuning."""

    container_engine: Literal["any", "docker", "podman"] | None = key(None, "which engine runs containers", "docker")
    clock_synchronised: bool | None = key(None, "whether the node's clock is kept by NTP or PTP", True)
    clock_skew_s: float | None = key(None, "how far the clocks of an inventory's nodes may be apart", 30.0, unit="s")
    memory: Positive | None = key(None, "RAM that there must be at least", "32G", unit="bytes")
    mpi: Literal["installed"] | None = key(
        None, "MPI on the node itself, for jobs that are started with it", "installed"
    )
    disk_free: dict[NodePath, int] = key({}, "free room by mount or path", {"/": "100G"}, unit="bytes")
    reboot: Literal["never", "when needed"] = key(
        "never", "whether a deploy may reboot a node for what takes effect at boot only", "when needed"
    )
    reboot_at_once: Positive = key(1, "nodes that may be down together", 4, unit="nodes")
    reboot_timeout_s: Positive = key(900, "time in which a node has to be back", 900, unit="s")
    kernel_log_clean: bool | None = key(
        None, "no line of a fault (docs/catalogue.md) in the kernel's log since boot", True
    )

    @field_validator("memory", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value)

    @field_validator("disk_free", mode="before")
    @classmethod
    def _sizes(cls, value: object) -> object:
        return {key: parse_size(size) for key, size in value.items()} if isinstance(value, dict) else value


EACH: Literal["each"] = "each"
TOGETHER: Literal["together"] = "together"


def _a_day(value: str) -> str:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError("a day as 2026-11-01")
    date.fromisoformat(value)
    return value


Day = Annotated[str, AfterValidator(_a_day)]


Share = Annotated[float, Field(gt=0, le=10)]


Via = Literal["ssh", "slurm"]
JobVia = Literal["ssh", "slurm", "kubernetes"]


class Slurm(Section):
    """Slurm, where it owns the nodes: with what jobs are submitted there, and what of its nodes may be touched."""

    node: Text | None = key(None, "the node's name in Slurm; None: its name in the inventory", "node01")
    connect: Via = key(
        "ssh",
        "how the node is reached at all: over SSH, or within an allocation that lasts as long as the run",
        "slurm",
    )
    allow_allocated: bool = key(
        False, "change nodes on which somebody's job runs; otherwise such a node is left as it is, and fails", True
    )
    partition: Word | None = key(None, "partition of the jobs; None: the cluster's default", "mi300x")
    reservation: Word | None = key(None, "reservation that the jobs run in", "maintenance")
    account: Word | None = key(None, "account that the jobs are charged to; None: the user's default", "bringup")
    time_min: Positive | None = key(
        None, "time limit of a job over all that runs in it; None: the partition's default", 120, unit="min"
    )
    queue_s: Positive = key(3600, "time that a job may wait in the queue until it is cancelled", 3600, unit="s")
    gres: Text | None = key(
        None,
        "generic resources of each node; None: all GPUs that Slurm has there, of the node with the fewest",
        "gpu:8",
    )
    options: list[Option] = key([], "further options of sbatch", ["--qos=high"])


class Kubernetes(Section):
    """Kubernetes, where it owns the nodes."""

    context: Text | None = key(
        None, "a context of the kubeconfig; None: its current one, or the account of the pod that this runs in", "rack7"
    )
    node: Text | None = key(None, "the node's name in the cluster; None: its name in the inventory", "node01")
    namespace: Text = key("default", "namespace of the pods that jobs run in", "bringup")
    image: Text | None = key(
        None, "image of these pods, with the job's environment in it (runtime process)", "registry.site/megatron:v25.5"
    )
    gpu_resource: Text = key("amd.com/gpu", "resource by which the pods ask for all GPUs of their node", "amd.com/gpu")
    service_account: Text | None = key(None, "service account of the pods", "bringup")
    mounts: dict[MountPath, Text] = key(
        {}, "folders of the node in the pods: host path -> path in the pod, :ro behind it", {"/srv/data": "/data:ro"}
    )
    queue_s: Positive = key(3600, "time that the pods may take to begin until they are deleted", 3600, unit="s")


class Smoke(Section):
    """The smoke run: which recipe, on how many nodes, judged by which figures."""

    recipe: Text = key(..., "the recipe, by its name", "llama3.1-8b-fp8")
    scope: list[Literal["each", "together"]] = key(
        [TOGETHER], "one job over all nodes, or one on each by itself, or both, in this order", ["each", "together"]
    )
    via: JobVia = key(
        "ssh",
        "how jobs are started: over SSH, within an allocation of Slurm's, or in pods (the section of that name)",
        "slurm",
    )
    isolate: bool = key(
        False, "after a training over all nodes that failed, search for the node or link that makes it fail", True
    )
    exclude: Literal["suspects"] | None = key(
        None, "leave out the nodes that the last search over this inventory named; None: nobody", "suspects"
    )
    runtime: Literal["container", "process"] | None = key(
        None, "containers, or processes in a virtual environment; None: as the recipe says", "container"
    )
    image: Text | None = key(None, "a name in images: the job's container image", "megatron")
    min_nodes: Positive | None = key(
        None,
        "train together without the nodes that failed, down to this many; None: with all or not at all",
        6,
        unit="nodes",
    )
    ranks_per_node: Positive | None = key(
        None, "ranks of a node; None: one per GPU, or as the recipe says", 8, unit="ranks"
    )
    iterations: Annotated[int, Field(ge=4)] | None = key(
        None, "iterations of the job; fewer than 4 leave no steady one. None: as the recipe says", 50
    )
    options: dict[Text, bool | int | float | str] = key(
        {}, "options of the recipe, or any argument of its program", {"MBS": 2}
    )
    environment: Environment = key({}, "variables of the job, over all others", {"NCCL_DEBUG": "INFO"})
    not_secret: list[Text] = key(
        [],
        "variables and options that are shown and kept, though their names look like a secret's",
        ["ROUTING_KEY"],
    )
    expect: dict[Text, float] = key(
        {},
        "metric -> bound, over the recipe's own figures; whether at least or at most is the metric's",
        {"throughput_per_gpu": 380.0},
    )
    expect_nodes: Positive | None = key(
        None,
        "expect holds for a job over this many nodes; with another number it is shown and not judged",
        1,
        unit="nodes",
    )
    baseline: Literal["off", "record", "judge"] = key(
        "record",
        "compare the figures with earlier passes of the same job: not at all, for information, or as gates",
        "judge",
    )
    baseline_since: Day | None = key(
        None, "earlier passes than this do not count: after a change that is the new normal", "2026-11-01"
    )
    baseline_by: Text | None = key(
        None, "who accepted what is since baseline_since as the new normal, for the evidence", "A. Smith, ticket 1234"
    )
    steady: bool = key(
        True, "judge how evenly the iterations follow each other; off where other work shares the nodes", False
    )
    scaling: Annotated[float, Field(gt=0, le=2)] | None = key(
        None,
        "share of what the nodes do alone in sum that they must do together; alone: scope each, or earlier runs",
        0.9,
    )
    seen_nodes: Positive | None = key(None, "fewer nodes than this in the inventory are a failure", 8, unit="nodes")
    privileged: bool = key(False, "run the container privileged, where the recipe's document does", True)
    shm_size: Annotated[str, Field(pattern=r"^[1-9][0-9]*[bkmgBKMG]?$")] | None = key(
        None, "size of the container's /dev/shm, over the recipe's", "64G", unit="bytes"
    )
    volumes: Volumes = key(
        {},
        "host path -> container path, with :ro and the like behind it; {home} is the job's user's home",
        {"/data": "/data:ro"},
    )
    devices: list[Text] | None = key(
        None, "devices of the container; None: as the recipe says", ["/dev/kfd", "/dev/dri"]
    )
    hf_token_file: Text | None = key(
        None, "file of one line on the controller, for its owner alone: the Hugging Face token", "~/.config/hf.token"
    )
    interface: Interface | None = key(
        None, "network interface of the rendezvous; None: the one of each node that routes to the master", "ens50f0"
    )
    master_port: Annotated[int, Field(gt=0, lt=65536)] | None = key(
        None, "port of the rendezvous; None: one that is free on the master", 29500
    )
    venv: Text | None = key(None, "runtime process: the virtual environment on the nodes", "/opt/megatron/venv")
    telemetry_s: Annotated[float, Field(ge=0.2, le=60)] | None = key(
        2.0, "time between two samples of each node while the job runs; None: none are taken", 2.0, unit="s"
    )
    stragglers: Literal["off", "told", "gate"] = key(
        "told",
        "measure each rank's own time where the program can: not at all, told, or judged too; of others than the"
        " small GPT only where it is judged, since Megatron's --log-straggler opens a port",
        "gate",
    )
    straggler_notice: Share = key(0.05, "share by which a node's ranks need longer than their peers: told", 0.05)
    straggler_warn: Share = key(0.10, "the same, told as a warning", 0.10)
    straggler_fail: Share = key(0.33, "the same, from which a node fails where it is judged", 0.33)
    start_timeout_s: Positive = key(600, "time to the first iteration", 600, unit="s")
    stall_timeout_s: Positive = key(300, "time between two iterations", 300, unit="s")
    timeout_s: Positive = key(7200, "time of the whole job", 7200, unit="s")
    unreachable_s: Positive = key(
        20, "time without an answer of a node until the job is stopped; the node ends its own part later", 20, unit="s"
    )

    @field_validator("scope", mode="before")
    @classmethod
    def _one_or_both(cls, value: object) -> object:
        scopes = [value] if isinstance(value, str) else value
        if scopes not in ([EACH], [TOGETHER], [EACH, TOGETHER]):
            raise ValueError('"each", "together", or ["each", "together"]: who fails alone is not taken along')
        return scopes


class Trials(Section):
    """Short measurements of each node and between nodes, before the smoke run."""

    only: list[Text] = key([], "the trials to run, by name; empty: all that there are", ["gemm", "memory", "pairs"])
    repetitions: Annotated[int, Field(ge=1, le=100)] = key(
        3, "how often each figure is taken; what is named is so in every one of them", 3
    )
    slower: Annotated[float, Field(gt=0, lt=1)] = key(
        0.1, "fraction below the median of its peers from which a part is named; half of it is told", 0.1
    )
    floors: dict[Text, float] = key(
        {},
        "TRIAL.FIGURE -> bound in the trial's unit, over the published ones; at most for times",
        {"gemm.bf16": 600.0},
    )
    racks: dict[Text, Text] = key(
        {},
        "node -> what it hangs on together with others, such as its leaf switch: pairs are read by these too",
        {"node01.rack7": "leaf1"},
    )
    via: JobVia = key(
        "ssh",
        "how jobs are started: over SSH, within an allocation of Slurm's, or in pods (the section of that name)",
        "slurm",
    )
    limit_s: Positive = key(60, "time in which a part has to give its next figure, or is ended", 60, unit="s")
    exclude: bool = key(False, "leave the nodes that a trial names out of the smoke run", True)


class Packages(Section):
    """One call of pip."""

    packages: list[Text] = key([], "requirements, as pip has them", ["torch>=2.6"])
    requirements: Text | None = key(None, "a file of requirements in the checkout", "requirements.txt")
    index_url: Text | None = key(
        None,
        "the package index; None: pip's own",
        "https://download.pytorch.org/whl/rocm6.2",
        source="adaptation-guide",
    )


class Source(Section):
    """A program from source on the node."""

    url: Text = key(..., "the git repository", "https://github.com/NVIDIA/Megatron-LM.git", source="adaptation-guide")
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] = key(
        ..., "a full hash: a branch is another one tomorrow", "151b30f68b1d7e2c28d28d37e9f9abfc1e6e6d9d"
    )
    path: Text = key(..., "the checkout, on the nodes", "/opt/megatron/Megatron-LM")
    patches: list[Text] = key([], "patches on the controller, applied in this order", ["patches/fused_softmax.patch"])
    venv: Text | None = key(
        None, "the virtual environment, on the nodes; None: nothing is installed", "/opt/megatron/venv"
    )
    python: Text = key("python3", "which python makes the virtual environment", "python3.11")
    install: list[Packages] = key(
        [],
        "calls of pip in this order: torch from ROCm's index before anything that would pull another",
        [{"packages": ["torch"], "index_url": "https://download.pytorch.org/whl/rocm6.2"}],
    )
    editable: bool = key(True, "install the checkout itself, pip install -e", False)
    modules: list[Text] = key(["torch", "megatron"], "what must be importable at the end", ["torch", "megatron"])


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class DataFile(Section):
    """A file to be downloaded. Without size and checksum the server's size is all that is compared."""

    url: Text = key(..., "where the file is", "https://example.org/text_document.bin")
    sha256: Sha256 | None = key(
        None,
        "its checksum; None: what was downloaded is recorded, and only its size is compared",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    )
    size_bytes: int | None = key(None, "its size; None: as the server says", "2G", unit="bytes")

    @field_validator("size_bytes", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value)


class Dataset(Section):
    """A data set of recipes/datasets.toml by its name there, or one of the site's own `files`."""

    folder: Text = key(..., "where the data is, on the nodes", "/data/deepseek")
    files: list[DataFile] = key(
        [], "files of the site's own data set", [{"url": "https://example.org/text_document.bin"}]
    )
    sha256: dict[Text, Sha256] = key(
        {},
        "checksums of a shipped data set's files, by name",
        {"SlimPajama.json": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
    )
    image: Text | None = key(None, "a name in images: the program that prepares the data is in it", "megatron")
    tokenizer: Text | None = key(
        None,
        "tokenizer of data that is prepared, a Hugging Face id; None: the script's own",
        "NousResearch/Meta-Llama-3-8B",
    )


class Benchmark(Section):
    """AMD's PyTorch training benchmark on each node by itself, as its document has it; deploy/pytorch_training.py."""

    mode: Literal["pretrain", "finetune_fw", "finetune_lora"] = key(
        ..., "what is measured", "pretrain", source="pytorch-training"
    )
    model: Literal["Llama-3.1-8B", "Llama-3.1-70B", "Flux"] = key(
        ..., "the model; which modes and precisions it has is the document's", "Llama-3.1-8B", source="pytorch-training"
    )
    precision: Literal["BF16", "FP8"] = key(..., "precision of the training", "BF16", source="pytorch-training")
    seq_length: Annotated[int, Field(ge=2048, le=8192)] | None = key(
        None, "sequence length; None: the script's own", 8192, unit="tokens"
    )
    image: Text = key(..., "a name in images", "pytorch")
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] = key(
        "151b30f68b1d7e2c28d28d37e9f9abfc1e6e6d9d",
        "commit of ROCm/MAD: an image needs the scripts of its time. The default is the newest "
        "one whose report script was read (2026-11-21)",
        "151b30f68b1d7e2c28d28d37e9f9abfc1e6e6d9d",
    )
    url: Text = key(
        "https://github.com/ROCm/MAD",
        "the git repository of the scripts",
        "https://git.example.org/mirrors/MAD",
        source="pytorch-training",
    )
    checkout: Text = key("/opt/mad", "the checkout, on the nodes", "/opt/mad")
    setup: bool = key(
        True,
        "run pytorch_benchmark_setup.sh first (libraries, models, data: some hundred "
        "gigabytes), and verify what it made",
        False,
    )
    hf_token_file: Text | None = key(
        None, "file of one line on the controller, for its owner alone: the Hugging Face token", "~/.config/hf.token"
    )
    expect: dict[Text, float] = key(
        {}, "metric -> bound; whether at least or at most is the metric's", {"tokens_per_gpu": 6000.0}
    )
    privileged: bool = key(False, "run the container privileged, as documented", True)
    devices: list[Text] | None = key(None, "devices of the container; None: as documented", ["/dev/kfd", "/dev/dri"])
    volumes: Volumes = key({}, "host path -> container path, with :ro and the like behind it", {"/data": "/data"})
    timeout_s: Positive = key(14400, "time of the whole benchmark", 14400, unit="s")


class Agent(Section):
    """The timer on each node that checks it without the controller, deploy/agent.py."""

    state: Literal["present", "absent"] = key("present", "have the agent on the nodes, or not", "absent")
    every_s: Annotated[int, Field(ge=30, le=86400)] = key(600, "time between two checks of a node", 600, unit="s")
    delay_s: Annotated[int, Field(ge=0, le=3600)] = key(
        120, "at most this much later, at random, so that not all nodes check at the same time", 120, unit="s"
    )
    timeout_s: Annotated[int, Field(ge=10, le=3600)] = key(
        120, "time of one check, after which it is ended", 120, unit="s"
    )
    memory_bytes: Positive = key(256 << 20, "memory of one check, above which it is ended", "256M", unit="bytes")
    stale_after_s: Positive | None = key(
        None, "age from which a verdict is unknown; None: two checks and a half", 3600, unit="s"
    )
    textfile: MountPath | None = key(
        None,
        "folder of node_exporter's textfile collector on the nodes, root's own; None: no metrics are written",
        "/var/lib/prometheus/node-exporter",
    )
    remedy: Literal["none", "safe"] = key(
        "none",
        "whether the agent puts back what is safe to change; it never loads a driver anew, and never boots",
        "safe",
    )
    remedies_per_day: Annotated[int, Field(ge=1, le=100)] = key(
        3, "how often a day it puts back one thing, after which it only tells", 3
    )

    @field_validator("memory_bytes", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value)

    @property
    def stale_s(self) -> int:
        """Age from which a verdict says nothing about the node any more, seconds."""
        return self.stale_after_s or (5 * (self.every_s + self.delay_s) + 2 * self.timeout_s) // 2


class Rolling(Section):
    """How `shakedown run` goes through the nodes: the same on every host of a run, and the command line wins."""

    batch: Some | None = key(
        None, "nodes that are changed at a time, a number or a share of all; None: all", "10%", unit="nodes"
    )
    max_failed: Amount | None = key(
        None,
        "more failed nodes than this, a number or a share, end the run; None: a batch of which none came through does",
        "5%",
        unit="nodes",
    )
    tries: Annotated[int, Field(ge=1, le=20)] = key(
        5,
        "tries to connect to a node, after pauses of 5, 10, 20 and so on to 120 s, while others are worked on",
        8,
        unit="tries",
    )


class Bmc(Section):
    """The site's own command that takes a node's power away and gives it back. It runs on the controller."""

    command: Annotated[list[Text], Field(min_length=1, max_length=64)] = key(
        ...,
        "program and arguments, run without a shell; {node} is the node's name in the inventory",
        ["/usr/local/sbin/bmc", "{node}", "cycle"],
    )
    password_file: Text | None = key(
        None, "file of one line on the controller, for its owner alone (chmod 600)", "~/.config/bmc.password"
    )
    password_env: Text | None = key(
        None, "variable of the controller with the password, in place of password_file", "BMC_PASSWORD"
    )
    password_as: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = key(
        "BMC_PASSWORD", "variable in which the command gets the password", "IPMI_PASSWORD"
    )
    timeout_s: Positive = key(120, "time of the command", 120, unit="s")
    unasked: bool = key(
        False, "also a node that does not answer and of which no scheduler says that it has no job", True
    )


class Service(Section):
    """The way back into service, `shakedown service`: what may be done with nodes that are suspect."""

    scheduler: Literal["slurm", "kubernetes"] | None = key(
        None, "who is asked whether a node has a job, and has nodes drained and resumed", "slurm"
    )
    drain: Literal["never", "propose", "yes"] = key(
        "never",
        "whether nodes that a run names are drained in the scheduler, and resumed once a later run has cleared them",
        "yes",
    )
    at_once: Some = key(
        "1",
        "nodes that may be out of service together, drained by us or being mended: a number, or a share of all",
        "5%",
        unit="nodes",
    )
    stop_at: Some = key(
        "25%",
        "when more nodes than this are named at once, none is drained; when more fail to be mended within a day, no "
        "other is tried: a number, or a share of all; a single one never stops it",
        "10%",
        unit="nodes",
    )
    rungs: list[Literal["mend", "reload driver", "reboot", "power cycle"]] = key(
        ["mend"], "what --mend may do with a node; what is not allowed is left to a person", ["mend", "reboot"]
    )
    back_s: Positive = key(900, "time in which a node has to be back after a power cycle", 900, unit="s")
    bmc: Bmc | None = key(
        None,
        "how a node's power is taken away and given back",
        {"command": ["/usr/local/sbin/bmc", "{node}", "cycle"], "password_file": "~/.config/bmc.password"},
    )


NO_PROMISE = {"pulls", "reports", "rolling"}
"""Sections that ask nothing of a node."""

Report = Literal["html", "junit", "prometheus", "markdown"]


class DesiredState(Section):
    """What one node should be."""

    tuning: Tuning = key(Tuning(), "host settings")
    gpu: Gpu = key(..., "the GPUs")
    rdma: Rdma = key(Rdma(), "the RDMA devices")
    images: dict[Text, Image] = key(
        {}, "container images, by the names that smoke.image, benchmark.image and datasets.NAME.image use"
    )
    pulls: Pulls = key(Pulls(), "how images come to the nodes")
    system: System = key(System(), "what the node needs besides tuning")
    smoke: Smoke | None = key(None, "the smoke run")
    slurm: Slurm | None = key(None, "Slurm, where it owns the nodes")
    kubernetes: Kubernetes | None = key(None, "Kubernetes, where it owns the nodes")
    trials: Trials | None = key(None, "trials before the smoke run, deploy/trials.py")
    source: Source | None = key(None, "a program from source, deploy/megatron_source.py")
    datasets: dict[Text, Dataset] = key(
        {}, "data sets on the nodes, deploy/datasets.py: shipped ones by name, or a site's own"
    )
    benchmark: Benchmark | None = key(None, "PyTorch training on each node, deploy/pytorch_training.py")
    agent: Agent | None = key(None, "the agent on the nodes, deploy/agent.py")
    rolling: Rolling = key(Rolling(), "a run in batches, `shakedown run --batch 10%`")
    service: Service | None = key(None, "the way back into service, shakedown service")
    reports: list[Report] = key(
        ["html"],
        "reports that a run writes into its directory, those of all hosts together; run.json is always there",
        ["html", "junit"],
    )
