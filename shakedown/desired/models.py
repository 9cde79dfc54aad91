"""The typed desired state. A field that is None (or empty) is not asked for, so nothing is checked or changed for it.

Every model refuses unknown keys and wrong types: a site's layer with a typing error must never be read as "not asked
for". Figures come from the profiles (`profiles/*.toml`), which name their sources.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from shakedown.desired.names import DevicePattern, Group, Module, MountPath, NodePath, Parameter, SysctlKey, Text, Word
from shakedown.desired.sizes import parse_size
from shakedown.images import parse

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


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Tuning(Section):
    """Host settings: what each is for, and how it is read, stands in docs/configuration.md."""

    numa_balancing: bool | None = None  # kernel.numa_balancing; training wants it off (False)
    cmdline: list[Parameter] = []  # kernel parameters; "{cpu}_iommu=on" becomes amd_ or intel_ by the CPU's vendor
    cpu_governor: Word | None = None  # on every CPU
    c2: Literal["disabled"] | None = None  # idle state 2
    thp: Literal["always", "madvise", "never"] | None = None
    pcie_acs: Literal["off"] | None = None
    memlock: Literal["unlimited"] | Positive | None = None  # KiB
    nofile: Positive | None = None
    groups: list[Group] = []  # of the user that runs jobs
    sysctl: dict[SysctlKey, int | Text] = {}
    modules: list[Module] = []  # loaded now and at every boot, besides those of gpu and rdma


class Gpu(Section):
    """The GPUs of a node. `profile` names a file of profiles/gpu; count 0 is a node without GPUs."""

    profile: Text
    name: Text  # "AMD Instinct MI300X"
    count: int = Field(ge=0)
    pci_ids: list[Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]] = []
    vram_bytes: int | None = None  # of one GPU
    link_gts: float | None = None  # PCIe, GT/s per lane
    link_width: Positive | None = None
    xgmi_links: Positive | None = None  # of one GPU, to the others of its board
    compute_partition: Word | None = None  # "SPX"
    memory_partition: Word | None = None  # "NPS1"
    rocm_min: Annotated[str, Field(pattern=r"^\d+\.\d+(\.\d+)?$")] | None = None
    rccl: Literal["installed"] | None = None  # on the node, for jobs that run without a container
    modules: list[Module] = []  # the driver; with it /dev/kfd and /dev/dri are wanted
    environment: Environment = {}  # of every job on these GPUs; the NIC family's, the options' and the site's win

    @field_validator("vram_bytes", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value)


class Provider(Section):
    """The libibverbs provider of a NIC family, on the host and in the container."""

    name: Module  # "bnxt_re": the driver that libibverbs.d names, and lib<name>-rdmav<abi>.so
    host_library: MountPath | None = None  # path on the host; {abi} stands for libibverbs' provider ABI
    source: Text | None = None  # the site's file on the controller, put at host_library where another or none stands
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None  # of host_library
    container_library: MountPath | None = None  # where the host's file is mounted in the container
    install_as: MountPath | None = None  # copied there inside the container before the job starts
    config_dirs: list[MountPath] = []  # libibverbs.d on the host, first that exists


class Rdma(Section):
    """The RDMA devices of a node. `family` names a file of profiles/nic; None where the node has none."""

    family: Text | None = None
    count: int = Field(default=0, ge=0)
    devices: list[DevicePattern] = []  # only these, by name, shell style: "bnxt_re[0-7]"; empty: all of the family
    usual_devices: list[DevicePattern] = []  # the family's own names, where the vendor is not known: "bnxt_re*"
    vendor: Annotated[str, Field(pattern=r"^[0-9a-f]{4}$")] | None = None  # PCI vendor id
    rate_gbps: float | None = None
    mtu: Positive | None = None  # of the devices' network interfaces
    link_gts: float | None = None
    link_width: Positive | None = None
    max_read_request: Positive | None = None  # bytes
    usual_gid_index: int | None = None  # told when the fact differs; the fact decides
    modules: list[Module] = []
    environment: Environment = {}
    provider: Provider | None = None
    mounts: dict[MountPath, MountPath] = {}  # host path -> container path, further files the container needs


class Image(Section):
    """A container image: `name:tag`, `name@sha256:...` or `name:tag@sha256:...`."""

    reference: Text
    insecure: bool = False  # a registry without TLS, or with a certificate nobody signed
    ca_file: Text | None = None  # the registry's own certificate, on the controller
    username: Text | None = None
    password_file: Text | None = None  # on the controller, 0600; or the environment variable named by password_env
    password_env: Text | None = None
    size_bytes: int | None = None  # unpacked, when the registry cannot be asked; disk room is checked against it

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


class System(Section):
    """What the node needs besides tuning."""

    container_engine: Literal["any", "docker", "podman"] | None = None
    clock_synchronised: bool | None = None
    clock_skew_s: float | None = None  # across the nodes of an inventory
    memory: Positive | None = None  # bytes of RAM at least ("32G")
    mpi: Literal["installed"] | None = None  # on the node, for jobs that are started with it
    disk_free: dict[NodePath, int] = {}  # mount or path -> bytes ("50G")
    reboot: Literal["never", "when needed"] = "never"
    reboot_at_once: Positive = 1  # nodes that may be down together
    reboot_timeout_s: Positive = 900
    kernel_log_clean: bool | None = None  # no fault signature in the kernel's log since boot

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


class Smoke(Section):
    """The smoke run: which recipe, on how many nodes, judged by which figures."""

    recipe: Text
    scope: list[Literal["each", "together"]] = [TOGETHER]  # one job over all nodes, or one on each by itself, or both
    runtime: Literal["container", "process"] | None = None  # None: as the recipe says
    image: Text | None = None  # a name in `images`
    min_nodes: Positive | None = None  # train together without the failed ones down to this many; None: with all
    ranks_per_node: Positive | None = None  # None: one per GPU, or the recipe's
    iterations: Annotated[int, Field(ge=4)] | None = None  # fewer than 4 leave no steady iteration
    options: dict[Text, bool | int | float | str] = {}  # the recipe's own, typed there
    environment: Environment = {}
    not_secret: list[Text] = []  # variables and options to be shown and kept, though their names look like secrets'
    expect: dict[
        Text, float
    ] = {}  # metric -> bound, over the recipe's and the profile's; its direction is the metric's
    expect_nodes: Positive | None = None  # expect is for a job over this many nodes; told, and not judged, with others
    seen_nodes: Positive | None = None  # fewer nodes in the inventory than this is a failure
    privileged: bool = False
    shm_size: Annotated[str, Field(pattern=r"^[1-9][0-9]*[bkmgBKMG]?$")] | None = None  # "64G"
    volumes: Volumes = {}
    devices: list[Text] | None = None  # None: as the recipe says
    hf_token_file: Text | None = None  # on the controller
    interface: Interface | None = None  # None: the one that routes to the master
    master_port: Annotated[int, Field(gt=0, lt=65536)] | None = None  # None: a free one
    venv: Text | None = None  # runtime process: the virtual environment on the nodes
    start_timeout_s: Positive = 600  # to the first iteration
    stall_timeout_s: Positive = 300  # between two iterations
    timeout_s: Positive = 7200  # in all
    unreachable_s: Positive = 20  # without an answer of a node until the job is stopped; it ends its own part later

    @field_validator("scope", mode="before")
    @classmethod
    def _one_or_both(cls, value: object) -> object:
        scopes = [value] if isinstance(value, str) else value
        if scopes not in ([EACH], [TOGETHER], [EACH, TOGETHER]):
            raise ValueError('"each", "together", or ["each", "together"]: who fails alone is not taken along')
        return scopes


class Packages(Section):
    """One call of pip."""

    packages: list[Text] = []  # pip's own words: "torch>=2.6"
    requirements: Text | None = None  # a file in the checkout
    index_url: Text | None = None


class Source(Section):
    """A program from source on the node."""

    url: Text
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]  # a full hash: a branch is another one tomorrow
    path: Text  # the checkout
    patches: list[Text] = []  # on the controller, in this order
    venv: Text | None = None  # None: nothing is installed
    python: Text = "python3"  # makes the virtual environment
    install: list[Packages] = []  # in this order: torch from ROCm's index before anything that would pull another
    editable: bool = True  # pip install -e of the checkout
    modules: list[Text] = ["torch", "megatron"]  # must be importable


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class DataFile(Section):
    """A file to be downloaded. Without size and checksum the server's size is all that is compared."""

    url: Text
    sha256: Sha256 | None = None
    size_bytes: int | None = None

    @field_validator("size_bytes", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value)


class Dataset(Section):
    """A data set of smoke/datasets.toml by its name there, or one of the site's own `files`."""

    folder: Text  # on the node
    files: list[DataFile] = []
    sha256: dict[Text, Sha256] = {}  # of a shipped data set's files, by name
    image: Text | None = None  # a name in `images`: the program that prepares the data is in it
    tokenizer: Text | None = None  # of data that is prepared: a Hugging Face id; None: the script's own


class Benchmark(Section):
    """AMD's PyTorch training benchmark on each node by itself, as its document has it; deploy/pytorch_training.py."""

    mode: Literal["pretrain", "finetune_fw", "finetune_lora"]
    model: Literal["Llama-3.1-8B", "Llama-3.1-70B", "Flux"]
    precision: Literal["BF16", "FP8"]
    seq_length: Annotated[int, Field(ge=2048, le=8192)] | None = None  # what the script takes
    image: Text  # a name in `images`
    # Of MAD: the image needs the scripts of its time. The default is the newest commit whose report script was read.
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] = "151b30f68b1d7e2c28d28d37e9f9abfc1e6e6d9d"
    url: Text = "https://github.com/ROCm/MAD"
    checkout: Text = "/opt/mad"  # on the node
    setup: bool = (
        True  # run pytorch_benchmark_setup.sh (libraries, models, data: some hundred gigabytes), and verify it
    )
    hf_token_file: Text | None = None  # on the controller
    expect: dict[Text, float] = {}  # metric -> bound, judged in the metric's own direction
    privileged: bool = False
    devices: list[Text] | None = None  # None: as documented
    volumes: Volumes = {}
    timeout_s: Positive = 14400


class DesiredState(Section):
    """What one node should be."""

    tuning: Tuning = Tuning()
    gpu: Gpu
    rdma: Rdma = Rdma()
    images: dict[Text, Image] = {}
    system: System = System()
    smoke: Smoke | None = None
    source: Source | None = None
    datasets: dict[Text, Dataset] = {}
    benchmark: Benchmark | None = None
