"""Write shakedown.json, a Grafana dashboard over the metrics of docs/reports.md: fleet, rack, node, run.

    python3 contrib/grafana/dashboard.py > contrib/grafana/shakedown.json

Every query is tested against a Prometheus that scraped our files (tests/unit/test_contrib_metrics.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCOPE = 'inventory=~"$inventory",source=~"$source"'
IN_RACK = f'{SCOPE},group=~"$group"'
OF_NODE = f'{SCOPE},node=~"$node"'
COLOURS = {"ok": "green", "warn": "blue", "drift": "yellow", "unknown": "purple", "fail": "red"}
WIDTH = 24  # of Grafana's grid


def target(expr: str, legend: str, table: bool) -> dict[str, Any]:
    """Return one query; a table shows what is now."""
    form = {"format": "table", "instant": True} if table else {"format": "time_series", "range": True}
    return {"refId": "A", "datasource": SOURCE, "expr": expr, "legendFormat": legend, **form}


def coloured() -> list[dict[str, Any]]:
    """Return one colour for each verdict, wherever its name is a series."""
    return [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for name, colour in COLOURS.items()
    ]


def panel(kind: str, title: str, width: int, expr: str, legend: str = "", unit: str = "short") -> dict[str, Any]:
    """Return a panel of the next free width; its place comes later."""
    table = kind == "table"
    hide = {"excludeByName": dict.fromkeys(["Time", "__name__", "job", "instance"], True)}
    return {
        "type": kind,
        "title": title,
        "datasource": SOURCE,
        "gridPos": {"w": width, "h": 4 if kind == "stat" else 8},
        "targets": [target(expr, legend, table)],
        "fieldConfig": {"defaults": {"unit": unit, "noValue": "none"}, "overrides": coloured()},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if kind == "stat" else {},
        **({"transformations": [{"id": "organize", "options": hide}]} if table else {}),
    }


ROWS = {
    "Fleet": [
        panel("stat", "Nodes by verdict", 12, f"sum by (verdict) (shakedown_node_verdict{{{SCOPE}}})", "{{verdict}}"),
        panel("stat", "Suspects", 4, f"count(count by (node) (shakedown_suspect{{{SCOPE}}}))"),
        panel(
            "stat",
            "Oldest check",
            8,
            f"max by (source) (time() - shakedown_finished_timestamp_seconds{{{SCOPE}}})",
            "{{source}}",
            "s",
        ),
        panel("table", "Verdicts", 8, f"shakedown_verdict{{{SCOPE}}} == 1"),
        panel(
            "table",
            "Causes by number of nodes",
            16,
            f"count by (cause, verdict, remedy) (shakedown_cause_info{{{SCOPE}}})",
        ),
        panel("timeseries", "Findings", 12, f"sum by (verdict) (shakedown_findings{{{SCOPE}}})", "{{verdict}}"),
        panel(
            "table", "Waivers: days left", 12, f"(shakedown_waiver_end_timestamp_seconds{{{SCOPE}}} - time()) / 86400"
        ),
    ],
    "Rack": [
        panel(
            "bargauge",
            "Nodes by rack and verdict",
            12,
            f"sum by (group, verdict) (shakedown_node_verdict{{{IN_RACK}}})",
            "{{group}} {{verdict}}",
        ),
        panel("table", "Nodes that are not ok", 12, f'shakedown_node_verdict{{{IN_RACK},verdict!="ok"}}'),
        panel(
            "timeseries",
            "Suspects by rack",
            24,
            f"count by (group) (shakedown_node_verdict{{{IN_RACK}}}"
            f" and on (inventory, source, node) shakedown_suspect{{{SCOPE}}})",
            "{{group}}",
        ),
    ],
    "Node": [
        panel("table", "Causes and remedies", 16, f"shakedown_cause_info{{{OF_NODE}}}"),
        panel(
            "table",
            "Agents' reports: age",
            8,
            f"max by (node, verdict) (time() - shakedown_agent_report_timestamp_seconds{{{OF_NODE}}})",
        ),
        panel("table", "Findings that are not ok", 12, f"shakedown_finding_not_ok{{{OF_NODE}}}"),
        panel("timeseries", "Findings", 12, f"sum by (verdict) (shakedown_findings{{{OF_NODE}}})", "{{verdict}}"),
    ],
    "Run": [
        panel("table", "Runs and their reports", 16, f"shakedown_run_info{{{SCOPE}}}"),
        panel("bargauge", "Nodes by part", 8, f"sum by (part) (shakedown_nodes{{{SCOPE}}})", "{{part}}"),
        panel("table", "Gates that do not hold", 12, f'shakedown_gate_verdict{{{SCOPE},verdict!="ok"}}'),
        panel("table", "Gates by verdict", 12, f"count by (job, verdict) (shakedown_gate_verdict{{{SCOPE}}})"),
        *(
            panel("timeseries", title, 6, f"{name}{{{SCOPE}}}", "{{job}} {{recipe}}", unit)
            for name, title, unit in (
                ("shakedown_throughput_flops_per_gpu", "Throughput of a GPU", "flops"),
                ("shakedown_throughput_tokens_per_gpu", "Tokens of a GPU", "cps"),
                ("shakedown_iteration_seconds", "Iteration", "s"),
                ("shakedown_memory_used_ratio", "GPU memory in use", "percentunit"),
            )
        ),
    ],
}
VARIABLES = {
    "inventory": "label_values(shakedown_verdict, inventory)",
    "source": 'label_values(shakedown_verdict{inventory=~"$inventory"}, source)',
    "group": f"label_values(shakedown_node_verdict{{{SCOPE}}}, group)",
    "node": f"label_values(shakedown_findings{{{SCOPE}}}, node)",
}


def placed() -> Iterator[dict[str, Any]]:
    """Yield the rows and their panels with ids and places."""
    number, top = 0, 0
    for title, panels in ROWS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            "panels": [],
        }
        left, top, tallest = 0, top + 1, 0
        for found in panels:
            number += 1
            place = found["gridPos"]
            if left + place["w"] > WIDTH:
                left, top, tallest = 0, top + tallest, 0
            yield {**found, "id": number, "gridPos": {**place, "x": left, "y": top}}
            left, tallest = left + place["w"], max(tallest, place["h"])
        top += tallest


def variable(name: str, query: str) -> dict[str, Any]:
    """Return a variable with all of its values chosen; several may be. An empty label is a value, too."""
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    sources = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "uid": "shakedown",
        "title": "Shakedown",
        "description": "Verdicts, causes, suspects and figures of GPU nodes",
        "tags": ["shakedown"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {"list": [sources, *(variable(name, query) for name, query in VARIABLES.items())]},
        "panels": list(placed()),
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=1, sort_keys=True))
