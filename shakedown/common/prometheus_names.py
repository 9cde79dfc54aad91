"""Names, labels and units of the metrics, for the controller's text format and for the agent on a node.

Every metric has the labels of COMMON: files of two inventories, and of a check and a run, share a folder of
node_exporter, which keeps one of two equal series and drops the other without an error.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

LONGEST = 200  # characters of a label's value
# Figure -> its name here, what it is, and the factor to the base unit that Prometheus wants.
FIGURES = {
    "throughput_per_gpu": ("shakedown_throughput_flops_per_gpu", "floating-point operations a second and GPU", 1e12),
    "tokens_per_gpu": ("shakedown_throughput_tokens_per_gpu", "tokens a second and GPU", 1.0),
    "elapsed_time_per_iteration": ("shakedown_iteration_seconds", "seconds of an iteration", 1e-3),
    "mem_usage": ("shakedown_memory_used_ratio", "part of the GPU's memory that the job held, 0 to 1", 1.0),
}
AGENT_REPORT = "shakedown_agent_report_timestamp_seconds"
NAMES = {
    "shakedown_verdict": "1 for the verdict that was reached, 0 for the others",
    "shakedown_run_info": "the run or check that these metrics are of, and where its report is on the controller",
    "shakedown_finished_timestamp_seconds": "when the run, or the check, ended: seconds since 1970, UTC",
    "shakedown_nodes": "nodes, by what they did",
    "shakedown_node_verdict": "1 for the verdict on each node and its part in the run; group: as a rack",
    "shakedown_findings": "findings of a node, by verdict",
    "shakedown_finding_not_ok": "1 for each finding that is not ok",
    "shakedown_suspect": "1 for each node that failed or is named by a search, a trial or a diagnosis, by cause",
    "shakedown_cause_info": "what each cause is: 1, with the verdict and the remedy",
    AGENT_REPORT: "when the agent checked: seconds since 1970, UTC; digest: of all that it found",
    "shakedown_waiver_end_timestamp_seconds": "when a waiver's last day is over: seconds since 1970, UTC",
    "shakedown_gate_verdict": "1 for the verdict of each gate",
    **{name: f"{doc}, median of the steady iterations" for name, doc, _factor in FIGURES.values()},
}
COMMON = ("inventory", "source")
_MORE: dict[str, tuple[str, ...]] = {
    "shakedown_verdict": ("verdict",),
    "shakedown_run_info": ("run_id", "report"),
    "shakedown_finished_timestamp_seconds": (),
    "shakedown_nodes": ("part",),
    "shakedown_node_verdict": ("node", "group", "part", "verdict"),
    "shakedown_findings": ("node", "verdict"),
    "shakedown_finding_not_ok": ("node", "finding", "verdict"),
    "shakedown_suspect": ("node", "cause"),
    "shakedown_cause_info": ("node", "cause", "verdict", "remedy"),
    AGENT_REPORT: ("node", "verdict", "digest"),
    "shakedown_waiver_end_timestamp_seconds": ("waiver", "owner"),
    "shakedown_gate_verdict": ("job", "gate", "verdict"),
    **{name: ("job", "recipe") for name, _doc, _factor in FIGURES.values()},
}
LABELS = {name: (*COMMON, *more) for name, more in _MORE.items()}


def inventory_label(inventory: str) -> str:
    """Return the value of the label `inventory`: the whole path of a file, since two sites on one controller can both
    have an inventories/rack.py. A digest ends what is longer than LONGEST."""
    path = Path(inventory)
    with suppress(OSError):  # names of hosts that make too long a path
        inventory = str(path.absolute()) if inventory and path.is_file() else inventory
    if len(inventory) <= LONGEST:
        return inventory
    return f"{inventory[: LONGEST - 9]}~{hashlib.sha256(inventory.encode('utf-8', 'replace')).hexdigest()[:8]}"
