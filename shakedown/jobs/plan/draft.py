"""A plan in the making: what is known, what was derived and why, what is wrong so far, and the job that it becomes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shakedown.desired.models import DesiredState, Smoke
from shakedown.desired.problems import Problem, listed
from shakedown.jobs.launch import Derived, LaunchPlan, NodePlan
from shakedown.recipes.options import ResolvedOptions
from shakedown.recipes.recipe import Recipe
from shakedown.state.node import NodeState, is_unreadable


class PlanError(ValueError):
    """A job that cannot be derived from the nodes or does not fit them. `problems` holds every error, not the first;
    `plan` is the job as far as it can be derived nevertheless, for a dry run."""

    def __init__(self, problems: Sequence[Problem], plan: LaunchPlan | None = None) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        self.plan = plan
        super().__init__(listed("the launch plan has", self.problems))


@dataclass
class PlanDraft:
    """A plan in the making: `desired` and `states` of the participants, in rank order; `smoke` of the master."""

    run_id: str
    recipe: Recipe
    desired: dict[str, DesiredState]
    states: dict[str, NodeState]
    smoke: Smoke
    alone: bool = False  # each node has a job like this for itself
    repaired: bool = False  # the job as it will be, for a dry run
    derived: list[Derived] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def master(self) -> str:
        """The first node: global rank 0 is there."""
        return next(iter(self.states))

    @property
    def is_distributed(self) -> bool:
        return len(self.states) > 1

    def note(self, name: str, value: object, reason: str) -> None:
        """Note a derived value, with its reason for the reader of the plan."""
        self.derived.append(Derived(name=name, value=str(value), why=reason))

    def refuse(self, where: str, path: str, value: object, expected: str) -> None:
        self.problems.append(Problem(where, path, str(value), expected))


@dataclass(frozen=True)
class Equipment:
    """What a node's container gets of the host."""

    devices: list[str] = field(default_factory=list)
    mounts: dict[str, str] = field(default_factory=dict)  # host file or folder -> its place in the container
    copies: dict[str, str] = field(default_factory=dict)  # inside the container, before the job starts


@dataclass(frozen=True)
class NodeAssignment:
    """One node's place in the job. `plan` has the node and its network, and no command yet."""

    plan: NodePlan
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
class PlannedJob:
    """The job as a whole, as every node gets it."""

    run_id: str
    chosen: ResolvedOptions
    nodes: int
    ranks: int  # on each node
    master_address: str
    master_port: int
    image: str | None = None
    hf_token: bool = False
