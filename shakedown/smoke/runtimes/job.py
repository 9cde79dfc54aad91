"""What both runtimes are given, and what they have in common: variables, and torchrun's command line."""

from __future__ import annotations

from dataclasses import dataclass, field

from shakedown.desired.models import DesiredState, Smoke
from shakedown.smoke.options import Chosen
from shakedown.smoke.plan import rccl, visible
from shakedown.smoke.plan.batch import Split
from shakedown.state import NodeState, is_unreadable


@dataclass(frozen=True)
class Equipment:
    """What a node's container gets of the host."""

    devices: list[str] = field(default_factory=list)
    mounts: dict[str, str] = field(default_factory=dict)  # host file or folder -> its place in the container
    copies: dict[str, str] = field(default_factory=dict)  # inside the container, before the job starts


@dataclass(frozen=True)
class Seat:
    """One node's place in the job."""

    name: str
    node_rank: int
    address: str
    interface: str
    hca: list[str]
    gid_index: int | None
    desired: DesiredState
    state: NodeState
    equipment: Equipment

    @property
    def smoke(self) -> Smoke:
        """The node's smoke section; a node without one takes no part."""
        assert self.desired.smoke is not None
        return self.desired.smoke

    @property
    def engine(self) -> str:
        """docker or podman."""
        engine = self.state.containers.engine
        return "docker" if is_unreadable(engine) else engine

    @property
    def home(self) -> str:
        """Home folder of the user that runs the job; a plan that needs it and has none was refused."""
        return self.state.account.home or ""


@dataclass(frozen=True)
class Job:
    """The job as a whole."""

    run_id: str
    chosen: Chosen
    split: Split
    nodes: int
    ranks: int  # on each node
    master_address: str
    master_port: int
    image: str | None = None
    hf_token: bool = False


def environment(job: Job, seat: Seat, run_dir: str) -> dict[str, str]:
    """Everything the program finds in its environment; RCCL's warnings are always in its log.

    `run_dir` is the run's folder as the program sees it.
    """
    return rccl.audible(wanted(job, seat, run_dir), distributed=job.nodes > 1)


def wanted(job: Job, seat: Seat, run_dir: str) -> dict[str, str]:
    """What is asked for. Later entries win: GPU profile, family, NIC family, derived, options, site."""
    family = job.chosen.recipe.family
    found = {**seat.desired.gpu.environment, **family.environment}
    for part in job.chosen.conditions():
        found |= part.environment
    if job.nodes > 1 and seat.hca:
        found |= seat.desired.rdma.environment
    found |= _network(job, seat)
    found |= _launch(job, seat, run_dir)
    found |= job.chosen.variables()
    return found | seat.smoke.environment


def _network(job: Job, seat: Seat) -> dict[str, str]:
    found = {"GLOO_SOCKET_IFNAME": seat.interface}
    if seat.state.gpus == [] and not seat.hca:
        return found
    found["NCCL_SOCKET_IFNAME"] = seat.interface
    if job.nodes == 1:
        return found
    if not seat.hca:
        found["NCCL_IB_DISABLE"] = "1"
        return found
    found["NCCL_IB_HCA"] = _hca_list(seat)
    if seat.gid_index is not None:
        found["NCCL_IB_GID_INDEX"] = str(seat.gid_index)
    return found


def _hca_list(seat: Seat) -> str:
    """NCCL takes the names as prefixes, so mlx5_1 would also be mlx5_10; a leading "=" makes them exact. Of a device
    with several ports it would use all, where only port 1 has been judged."""
    ports = {} if is_unreadable(seat.state.rdma) else {device.name: device.ports for device in seat.state.rdma}
    others = [name for name in ports if name not in seat.hca and name.startswith(tuple(seat.hca))]
    return ("=" if others else "") + ",".join(f"{name}:1" if ports.get(name, 1) > 1 else name for name in seat.hca)


def _launch(job: Job, seat: Seat, run_dir: str) -> dict[str, str]:
    """The program's own variables for what was derived."""
    names = job.chosen.recipe.family.launch
    values = {
        names.master_address: job.master_address,
        names.master_port: str(job.master_port),
        names.nodes: str(job.nodes),
        names.node_rank: str(seat.node_rank),
        names.ranks: str(job.ranks),
        names.log_dir: f"{run_dir}/logs",
    }
    gpus = seat.state.gpus
    if not is_unreadable(gpus) and 0 < job.ranks < len(gpus) and not visible.named(seat.smoke.environment):
        values |= dict.fromkeys(names.visible_devices, ",".join(str(index) for index in range(job.ranks)))
    return {name: value for name, value in values.items() if name is not None}


def program(job: Job, seat: Seat, run_dir: str, torchrun: str = "torchrun", log_dir: str | None = None) -> list[str]:
    """The command line inside the runtime.

    torchrun gets a static rendezvous: c10d's needs host names that resolve, and hands out ranks as nodes arrive.
    Without a `log_dir` it makes a folder under /tmp, which stays there when torchrun is killed.
    """
    family = job.chosen.recipe.family
    command = [job.chosen.place(word, run_dir) for word in family.command]
    arguments = job.chosen.arguments() if family.arguments == "program" else []
    if family.launcher == "script":
        return [*command, *arguments]
    return [
        torchrun,
        *("--nnodes", str(job.nodes)),
        *("--node-rank", str(seat.node_rank)),
        *("--nproc-per-node", str(job.ranks)),
        *("--master-addr", job.master_address),
        *("--master-port", str(job.master_port)),
        *(("--log-dir", log_dir) if log_dir else ()),
        *command,
        *arguments,
    ]


def secrets(job: Job) -> list[str]:
    """Variables whose values only the controller knows."""
    name = job.chosen.recipe.family.launch.hf_token
    return [name] if job.hf_token and name else []
