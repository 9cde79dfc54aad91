"""What both runtimes are given, and what they have in common: variables, and torchrun's command line."""

from __future__ import annotations

from dataclasses import dataclass, field

from shakedown.desired.models import DesiredState
from shakedown.smoke.options import Chosen
from shakedown.smoke.plan.batch import Split
from shakedown.state import NodeState, is_unreadable


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

    @property
    def home(self) -> str:
        """Home folder of the user that runs the job."""
        user = self.state.account.user
        return "/root" if user == "root" else f"/home/{user}"


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
    venv: str | None = None
    extra: dict[str, str] = field(default_factory=dict)


def environment(job: Job, seat: Seat, run_dir: str) -> dict[str, str]:
    """Everything the program finds in its environment. Later entries win: family, NIC family, derived, options, site.

    `run_dir` is the run's folder as the program sees it.
    """
    family = job.chosen.recipe.family
    found = dict(family.environment)
    for part in family.conditional:
        if job.chosen.matches(part.when):
            found |= part.environment
    if job.nodes > 1 and seat.hca:
        found |= seat.desired.rdma.environment
    found |= _network(job, seat)
    found |= _launch(job, seat, run_dir)
    found |= job.chosen.variables()
    if seat.desired.smoke is not None:
        found |= seat.desired.smoke.environment
    return found


def _network(job: Job, seat: Seat) -> dict[str, str]:
    found = {"GLOO_SOCKET_IFNAME": seat.interface}
    gpus = seat.state.gpus
    if gpus == []:
        return found
    found["NCCL_SOCKET_IFNAME"] = seat.interface
    if job.nodes == 1:
        return found
    if not seat.hca:
        found["NCCL_IB_DISABLE"] = "1"
        return found
    found["NCCL_IB_HCA"] = ",".join(seat.hca)
    if seat.gid_index is not None:
        found["NCCL_IB_GID_INDEX"] = str(seat.gid_index)
    return found


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
    if not is_unreadable(gpus) and 0 < job.ranks < len(gpus):
        values[names.visible_devices] = ",".join(str(index) for index in range(job.ranks))
    return {name: value for name, value in values.items() if name is not None}


def program(job: Job, seat: Seat, run_dir: str, torchrun: str = "torchrun") -> list[str]:
    """The command line inside the runtime.

    torchrun gets a static rendezvous: c10d's needs host names that resolve, and hands out ranks as nodes arrive.
    """
    family = job.chosen.recipe.family
    command = [word.replace("{run_dir}", run_dir) for word in family.command]
    if family.launcher == "script":
        return command
    return [
        torchrun,
        *("--nnodes", str(job.nodes)),
        *("--node-rank", str(seat.node_rank)),
        *("--nproc-per-node", str(job.ranks)),
        *("--master-addr", job.master_address),
        *("--master-port", str(job.master_port)),
        *command,
        *job.chosen.arguments(),
    ]


def secrets(job: Job) -> list[str]:
    """Variables whose values only the controller knows."""
    name = job.chosen.recipe.family.launch.hf_token
    return [name] if job.hf_token and name else []
