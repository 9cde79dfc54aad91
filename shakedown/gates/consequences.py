"""Which gates only follow from what ended a job early, and what a diagnosis changes in the words of the others."""

from collections.abc import Iterable, Sequence

from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.gates.job_end import after_origin, begun_elsewhere
from shakedown.gates.model import Gate
from shakedown.state.findings import Verdict

# What an early end leaves behind, whatever ended the job: each of these then says the same in its own words.
OF_AN_EARLY_END = frozenset(
    {
        "ran_to_its_end",
        "exit_codes",
        "logs_complete",
        "iterations_complete",
        "steps_complete",
        "ended_well",
        "loss_falling",
    }
)
# What fails over all nodes, besides the metrics, where one of them is slow or computes wrong.
OF_SOME_NODE = {"loss_finite", "no_skipped_or_nan", "gradient_norm", "loss_falling", "steady", "scaling_efficiency"}
OF_NAMED_NODES = {"no_straggler"}  # over all nodes too, and where they fail, `actual` holds the nodes
OF_SOME_NODE |= OF_NAMED_NODES
# Unknown for a reason of their own, however the job ended. Other gates are unknown for what the end cut off.
INDEPENDENT = frozenset({"no_kernel_fault", "no_throttling", "nothing_left", "baseline_known", "recipe"})
_ENDS = ("ran_to_its_end", "exit_codes")  # gates that show an early end; the first explains the most
_QUOTES = "no_failure_signature"  # the gate that quotes the lines which a diagnosis rests on


def named(gate: Gate) -> list[str]:
    """Return the nodes that a gate over a whole job names as the ones that failed it; empty: it names none."""
    names = gate.name in OF_NAMED_NODES and gate.verdict is Verdict.FAIL
    return [node for node in str(gate.actual or "").split(", ") if node] if names else []


def about(gate: Gate, node: str) -> bool:
    """Return whether a gate says something of a node. One over the whole job does of all, unless it names some."""
    return gate.node in (None, node) and (not named(gate) or node in named(gate))


def split(gates: Sequence[Gate], diagnosis: Diagnosis | None) -> tuple[list[Gate], list[Gate]]:
    """Return gates that fail on their own account, and those that only follow from their job's early end.
    Where no diagnosis explains the end, the first gate that shows it stands for itself."""
    own: list[Gate] = []
    following: list[Gate] = []
    of_job: dict[str, list[Gate]] = {}  # as many as nodes, where each node had one for itself
    for gate in gates:
        of_job.setdefault(gate.job, []).extend([gate] if gate.verdict is not Verdict.OK else [])
    for job, bad in of_job.items():
        ends = [gate for name in _ENDS for gate in bad if gate.name == name]
        explained = diagnosis is not None and diagnosis.job in ("", job)
        cause = diagnosis.evidence[0].text if diagnosis is not None and explained and diagnosis.evidence else ""
        for gate in bad:
            quotes = bool(cause) and gate.actual == 1 and cause in gate.evidence  # the diagnosis says it already
            follows = quotes or _follows(gate, explained)
            stands = not ends or (gate is ends[0] and not explained) or not follows
            (own if stands else following).append(gate)
    return own, following


def _follows(gate: Gate, explained: bool) -> bool:
    """Return whether a gate of a job that ended early says no more than that."""
    if gate.name in INDEPENDENT or gate.verdict is Verdict.WARN:
        return False
    if gate.name in OF_AN_EARLY_END or (gate.name == _QUOTES and explained):
        return True
    return gate.verdict is Verdict.UNKNOWN or gate.actual is None or (gate.name == "loss_finite" and not gate.wanted)


_CHANGED = {"exit_codes": after_origin, "ran_to_its_end": begun_elsewhere}


def with_origin(gates: Iterable[Gate], diagnosis: Diagnosis | None) -> list[Gate]:
    """Return the gates of a run, of which none names a node as failed whose end only followed from another node's."""
    origin = (*diagnosis.origin, *diagnosis.common) if diagnosis and diagnosis.confidence != "undecided" else ()
    return [
        _CHANGED[gate.name](gate, origin)
        if origin and diagnosis and gate.name in _CHANGED and diagnosis.job in ("", gate.job)
        else gate
        for gate in gates
    ]
