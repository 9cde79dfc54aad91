"""Names, labels and units of the metrics, for the controller's text format and for the agent on a node."""

# Figure -> its name here, what it is, and the factor to the base unit that Prometheus wants.
FIGURES = {
    "throughput_per_gpu": ("shakedown_throughput_flops_per_gpu", "floating-point operations a second and GPU", 1e12),
    "tokens_per_gpu": ("shakedown_throughput_tokens_per_gpu", "tokens a second and GPU", 1.0),
    "elapsed_time_per_iteration": ("shakedown_iteration_seconds", "seconds of an iteration", 1e-3),
    "mem_usage": ("shakedown_memory_used_ratio", "part of the GPU's memory that the job held, 0 to 1", 1.0),
}
NAMES = {
    "shakedown_verdict": "1 for the verdict that was reached, 0 for the others",
    "shakedown_run_info": "the run that these metrics are of",
    "shakedown_finished_timestamp_seconds": "when the run, or the check, ended: seconds since 1970, UTC",
    "shakedown_nodes": "nodes, by what they did",
    "shakedown_node_verdict": "1 for the verdict on each node and its part in the run",
    "shakedown_findings": "findings of a node, by verdict",
    "shakedown_finding_not_ok": "1 for each finding that is not ok",
    "shakedown_gate_verdict": "1 for the verdict of each gate",
    **{name: f"{doc}, median of the steady iterations" for name, doc, _factor in FIGURES.values()},
}
LABELS = {
    "shakedown_verdict": ("inventory", "verdict"),
    "shakedown_run_info": ("inventory", "run_id"),
    "shakedown_finished_timestamp_seconds": ("inventory",),
    "shakedown_nodes": ("part",),
    "shakedown_node_verdict": ("node", "part", "verdict"),
    "shakedown_findings": ("node", "verdict"),
    "shakedown_finding_not_ok": ("node", "finding", "verdict"),
    "shakedown_gate_verdict": ("job", "gate", "verdict"),
    **{name: ("job", "recipe") for name, _doc, _factor in FIGURES.values()},
}
