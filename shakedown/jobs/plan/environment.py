"""A job's environment on each node: what is asked for, chosen GPUs, devices that the site names, RCCL's warnings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shakedown.common.data import kept_toml
from shakedown.common.lists import grouped
from shakedown.hosts import folded
from shakedown.jobs.plan.draft import NodeAssignment, PlanDraft, PlannedJob
from shakedown.logs.nccl_debug import SHOWS_WARNINGS
from shakedown.node.launcher.standstill import FOLDER as HANG
from shakedown.recipes.variables import Device, variables
from shakedown.state.gid import ROCE_V2
from shakedown.state.node import NodeState, RdmaDevice, is_unreadable

# HIP, CUDA's compatibility layer and PyTorch count what ROCR leaves.
SAME = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "PYTORCH_ROCM_DEVICE")
BELOW = "ROCR_VISIBLE_DEVICES"


def gpu_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in (*SAME, BELOW) if name in environment}


def chosen_gpus(environment: Mapping[str, str]) -> tuple[list[int] | None, dict[str, str]]:
    """Return the indices of the chosen GPUs, None without a choice, and what was expected of unusable variables."""
    given = gpu_variables(environment)
    problems: dict[str, str] = {}
    lists: dict[str, list[int]] = {}
    for name, value in given.items():
        words = value.split(",")
        if not all(word.isascii() and word.isdigit() for word in words) or len(set(map(int, words))) < len(words):
            problems[name] = "the numbers of GPUs, each once, with commas between them, such as 0,1"
        else:
            lists[name] = [int(word) for word in words]
    if BELOW in given and len(given) > 1:
        problems[BELOW] = f"{BELOW} or the others: {', '.join(SAME)} count among the GPUs that it leaves"
    first = next(iter(lists), None)
    for name, indices in lists.items():
        if first is not None and name not in problems and BELOW not in given and indices != lists[first]:
            problems[name] = f"{given[first]} as {first} says"
    return (lists[first] if first is not None else None), problems


# RCCL's warnings: a run whose log cannot hold them could not be judged on them, so a plan sees to it that it does. That
# nodes fell back to TCP is no warning: where they use RDMA, and nobody set a level, RCCL names its network as well.
LEVEL = "NCCL_DEBUG"
FILE = "NCCL_DEBUG_FILE"
WARN = "WARN"
INFO = "INFO"


def with_rccl_warnings(environment: Mapping[str, str], distributed: bool, rdma: bool = False) -> dict[str, str]:
    """Return the environment with RCCL's warnings in the job's own output. A level that is too low is raised, whoever
    set it, and none is given a file. `distributed`: several nodes, whose RCCL warnings are always logged, and with
    `rdma` the network that RCCL uses."""
    result = {LEVEL: INFO, **environment} if distributed and rdma else dict(environment)
    level = result.get(LEVEL)
    if (level is not None or distributed) and (level or "").upper() not in SHOWS_WARNINGS:
        result[LEVEL] = WARN
    if LEVEL in result:
        result.pop(FILE, None)
    return result


def environment(job: PlannedJob, node: NodeAssignment, run_dir: str) -> dict[str, str]:
    """Return everything the program finds in its environment. `run_dir`: the run's folder as the program sees it."""
    return with_rccl_warnings(requested_environment(job, node, run_dir), job.nodes > 1, bool(node.plan.hca))


def requested_environment(job: PlannedJob, node: NodeAssignment, run_dir: str) -> dict[str, str]:
    """Return what is requested. Later entries win: GPU profile, family, NIC family, derived, options, site."""
    family = job.chosen.recipe.family
    recorder = {} if node.state.gpus == [] else kept_toml("shakedown.jobs.plan", "recorder.toml")["environment"]
    recorded = {name: text.replace("{hang}", f"{run_dir}/{HANG}") for name, text in recorder.items()}
    derived = {**recorded, **node.desired.gpu.environment} if family.roles else {}  # else it is the program's own
    result = {**derived, **family.environment}
    for part in job.chosen.conditions():
        result |= part.environment
    if node.plan.hca:  # only a job that spans nodes has any
        result |= node.desired.rdma.environment
    result |= _network(job, node)
    result |= _launch(job, node, run_dir)
    result |= job.chosen.variables()
    return result | node.smoke.environment


def _network(job: PlannedJob, node: NodeAssignment) -> dict[str, str]:
    if not node.plan.interface:
        return {}
    result = {"GLOO_SOCKET_IFNAME": node.plan.interface}
    if node.state.gpus == [] and not node.plan.hca:
        return result
    result["NCCL_SOCKET_IFNAME"] = node.plan.interface
    if job.nodes == 1:
        return result
    if not node.plan.hca:
        result["NCCL_IB_DISABLE"] = "1"
        return result
    result["NCCL_IB_HCA"] = _hca_list(node)
    if node.plan.gid_index is not None:
        result["NCCL_IB_GID_INDEX"] = str(node.plan.gid_index)
    return result


def _hca_list(node: NodeAssignment) -> str:
    """NCCL takes the names as prefixes, so mlx5_1 would also be mlx5_10; a leading "=" makes them exact. Of a device
    with several ports it would use all, where only port 1 has been judged."""
    ports = {} if is_unreadable(node.state.rdma) else {device.name: device.ports for device in node.state.rdma}
    others = [name for name in ports if name not in node.plan.hca and name.startswith(tuple(node.plan.hca))]
    return ("=" if others else "") + ",".join(f"{name}:1" if ports.get(name, 1) > 1 else name for name in node.plan.hca)


def _launch(job: PlannedJob, node: NodeAssignment, run_dir: str) -> dict[str, str]:
    names = job.chosen.recipe.family.launch
    values = {
        names.master_address: job.master_address,
        names.master_port: str(job.master_port),
        names.nodes: str(job.nodes),
        names.node_rank: str(node.plan.node_rank),
        names.ranks: str(job.ranks),
        names.log_dir: f"{run_dir}/logs",
    }
    gpus = node.state.gpus
    if not is_unreadable(gpus) and job.ranks < len(gpus) and not gpu_variables(node.smoke.environment):
        values |= dict.fromkeys(names.visible_devices, ",".join(str(index) for index in range(job.ranks)))
    return {name: value for name, value in values.items() if name is not None}


def note_environment(draft: PlanDraft) -> None:
    """Note the site's own variables that stand over derived values, and those that hurt on the GPUs of a node."""
    family = draft.recipe.family
    requested = {**family.environment, **draft.smoke.environment}
    for caution in family.cautions:
        hurt = [name for name, own in draft.desired.items() if own.gpu.profile in caution.gpus]
        if hurt and requested.get(caution.variable) == caution.value:
            draft.note(f"warning: {caution.variable}", caution.value, f"{caution.why} ({', '.join(hurt)})")
    for name, value in draft.smoke.environment.items():
        if name in variables().devices:
            draft.note(name, value, "typed by the site in smoke.environment, over the derived value")


def note_rccl_changes(draft: PlanDraft, job: PlannedJob, assignments: Sequence[NodeAssignment]) -> None:
    """Where the environment asked for less of RCCL's log than the gates need."""
    for node in assignments:
        requested, given = requested_environment(job, node, ""), environment(job, node, "")
        if LEVEL in requested and given.get(LEVEL) != requested[LEVEL]:
            before = requested[LEVEL] or "an empty value"
            reason = f"{before} was requested, and would keep back the warnings that are judged"
            draft.note(f"{node.plan.name}: {LEVEL}", given[LEVEL], reason)
        if FILE in requested and FILE not in given:
            reason = f"{requested[FILE]} was requested: RCCL's lines would not be in the logs that are judged"
            draft.note(f"{node.plan.name}: {FILE}", "left out", reason)


AUTOMATIC = "-1"  # a GID index that RCCL chooses
OWN_CHOICE = {"UCX_NET_DEVICES": "all"}


def check_typed_devices(draft: PlanDraft) -> None:
    """Refuse names of devices that a node does not have. Nodes with the same answer are one problem."""
    environment = draft.smoke.environment
    groups = grouped((problem, name) for name, state in draft.states.items() for problem in _wrong(environment, state))
    for (variable, expected), names in groups.items():
        draft.refuse(folded(names), f"smoke.environment.{variable}", environment[variable], expected)


def _wrong(environment: Mapping[str, str], state: NodeState) -> Iterator[tuple[str, str]]:
    for variable, device in variables().devices.items():
        value = environment.get(variable)
        if not value or value == OWN_CHOICE.get(variable):
            continue
        if device.what in ("hca", "gid") and environment.get("NCCL_IB_DISABLE") == "1":
            continue
        expected = _gid(value, environment, state) if device.what == "gid" else _names(value, device, state)
        if expected:
            yield variable, expected


def _names(value: str, device: Device, state: NodeState) -> str:
    """Return what was expected in place of the list; empty: each of its entries names a device that works."""
    works, others = _devices(device, state)
    if isinstance(works, str):
        return works
    shown = f"devices of the node ({', '.join(works) or 'there is none that is up'})"
    excludes = device.list == "nccl" and value.startswith("^")
    exact = device.list != "nccl" or value.removeprefix("^").startswith("=")
    if excludes:
        left_out = {name for entry in _entries(value) for name in _matching(entry, works, exact)}
        return "" if set(works) - left_out else f"a list that leaves some of the {shown}"
    for entry in _entries(value):
        name, _, port = entry.partition(":")
        if not (found := _matching(entry, works, exact)):
            broken = _matching(entry, others, exact)
            reason = f"; {broken[0]} {others[broken[0]]}" if broken else f"; {name or 'an empty entry'} is none"
            return f"{shown}{reason}"
        if port and not (port.isdigit() and 1 <= int(port) <= max(works[match] for match in found)):
            return f"ports of {found[0]} (1 to {works[found[0]]}); {port} is none"
    return ""


def _entries(value: str) -> list[str]:
    return [entry.strip() for entry in value.lstrip("^").lstrip("=").split(",")]


def _matching(entry: str, names: Iterable[str], exact: bool) -> list[str]:
    """Return the names that an entry means: exactly this one, or all that begin with it."""
    wanted = entry.partition(":")[0]
    return [name for name in names if name == wanted or (wanted and not exact and name.startswith(wanted))]


def _devices(device: Device, state: NodeState) -> tuple[dict[str, int] | str, dict[str, str]]:
    works: dict[str, int] = {}
    others: dict[str, str] = {}
    if device.what in ("interface", "any"):
        if is_unreadable(state.interfaces):
            return f"a list of the network interfaces, which is {state.interfaces}", {}
        for interface in state.interfaces:
            if interface.up and (interface.ipv4 or interface.ipv6):
                works[interface.name] = 1
            else:
                others[interface.name] = "is down or has no address"
    if device.what in ("hca", "any"):
        if is_unreadable(state.rdma):
            return f"a list of the RDMA devices, which is {state.rdma}", {}
        for hca in state.rdma:
            if hca.state == "ACTIVE":
                works[hca.name] = hca.ports
            else:
                others[hca.name] = f"is {hca.state}"
    return works, others


def _gid(value: str, environment: Mapping[str, str], state: NodeState) -> str:
    """Return what was expected in place of the GID index; empty: each device has a RoCE v2 entry there."""
    if value == AUTOMATIC:
        return ""
    if not value.isdigit():
        return f"the index of a {ROCE_V2} entry, or {AUTOMATIC}"
    if is_unreadable(state.rdma):
        return f"a list of the RDMA devices, which is {state.rdma}"
    for hca in _used(environment.get("NCCL_IB_HCA"), state.rdma):
        if hca.link_layer == "InfiniBand" or is_unreadable(hca.gids):
            continue
        routed = [entry for entry in hca.gids if entry.type == ROCE_V2 and not entry.gid.startswith("fe80")]
        indices = [entry.index for entry in routed]
        if int(value) not in indices:
            return f"the index of a {ROCE_V2} entry of {hca.name} ({', '.join(map(str, indices)) or 'it has none'})"
    return ""


def _used(typed: str | None, devices: Iterable[RdmaDevice]) -> list[RdmaDevice]:
    """Return the devices that RCCL will use: those that are named, or all that work."""
    active = [device for device in devices if device.state == "ACTIVE"]
    if not typed or typed.startswith("^"):
        return active
    names = {device.name for device in active}
    named = {name for entry in _entries(typed) for name in _matching(entry, names, typed.startswith("="))}
    return [device for device in active if device.name in named]
