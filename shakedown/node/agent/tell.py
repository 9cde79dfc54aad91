"""Where the agent's verdict goes: a file for programs, a line for what has to be quick, node_exporter's folder, the
journal. Each is written whole or not at all, and nowhere where another user could redirect it."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

from ..safe_files import sound
from .models import as_json as compact

FOLDER = "/var/lib/shakedown"
VERDICT = "verdict.json"
LINE = "verdict"
REMEDIED = "remedied.json"
METRICS = "shakedown_agent.prom"
SHORT = 80  # bytes of a message that node-problem-detector keeps (max_output_length of its custom plugins)
LABEL = 200  # characters
LONGEST = 4000  # characters of a line of the journal
VERDICTS = ("ok", "warn", "drift", "fail", "unknown")
SEVERITY = {"drift": 5, "unknown": 4, "fail": 3, "warn": 6}  # of syslog: notice, warning, error, informational


def put(folder: str, name: str, text: str, mode: int = 0o644) -> None:
    """Write a file of the agent. Raises Unsafe and OSError."""
    sound(folder, 0o755).write(name, text.encode("utf-8", "replace"), mode)


def verdict_line(told: Dict[str, Any]) -> str:
    """`VERDICT SECONDS STALE MESSAGE`: what the sh command answers from, without a Python."""
    return "{} {:.0f} {} {}\n".format(told["verdict"], told["at"], told["stale_after_s"], message(told))


def message(told: Dict[str, Any]) -> str:
    """In at most SHORT bytes what is not as it should be."""
    names = [each["name"] for each in told["findings"] if each["verdict"] == told["verdict"]]
    if told["verdict"] == "ok":
        words = "shakedown: ok, {} findings".format(len(told["findings"]))
    elif told["why"]:
        words = "shakedown: {}: {}".format(told["verdict"], told["why"])
    else:
        words = "shakedown: {} {}: {}".format(len(names), told["verdict"], " ".join(names))
    plain = "".join(each if " " <= each <= "~" else "?" for each in words)
    return plain if len(plain) <= SHORT else plain[: SHORT - 3] + "..."


def journal(told: Dict[str, Any]) -> Iterator[str]:
    """Yield a line for each finding that is not ok, with syslog's level in front (sd-daemon(3)), and a last line. Users
    of the node choose names of processes and of files; such a name begins no line of the journal."""
    from shakedown.common.text import printable

    for line in _lines(told):
        yield printable(line, LONGEST)


def _lines(told: Dict[str, Any]) -> Iterator[str]:
    for each in told["findings"]:
        if each["verdict"] != "ok":
            yield "<{}>{}".format(SEVERITY[each["verdict"]], told["said"][each["name"]])
    for each in told["remedied"]:
        words = "put back: " + each["did"] if each["did"] else "not put back: " + each["left"]
        yield "<5>{}: {}".format(each["finding"], words)
    for each in told["not_told"]:
        yield "<4>" + each
    words = "{verdict}: {counts} in {wall_s:.2f} s, {cpu_s:.3f} s of CPU, desired state {desired}".format(
        verdict=told["verdict"],
        counts=", ".join("{} {}".format(count, name) for name, count in told["counts"].items() if count),
        wall_s=told["wall_s"],
        cpu_s=told["cpu_s"],
        desired=told["desired"][:12],
    )
    yield "<{}>{}".format(SEVERITY.get(told["verdict"], 6), words + (": " + told["why"] if told["why"] else ""))


def metrics(told: Dict[str, Any], known: Dict[str, Any]) -> str:
    """Prometheus' text format. Names, words and labels are those of the controller's own report (`known`)."""
    node = told["node"]
    rows: List[Tuple[str, List[Tuple[List[str], float]]]] = [
        ("shakedown_verdict", [(["", each], each == told["verdict"]) for each in ("ok", "drift", "fail", "unknown")]),
        ("shakedown_finished_timestamp_seconds", [([""], told["at"])]),
        ("shakedown_findings", [([node, each], told["counts"][each]) for each in VERDICTS]),
        (
            "shakedown_finding_not_ok",
            [([node, each["name"], each["verdict"]], 1) for each in told["findings"] if each["verdict"] != "ok"],
        ),
    ]
    lines = []
    for name, samples in rows:
        if samples:
            lines += ["# HELP {} {}".format(name, known[name]["help"]), "# TYPE {} gauge".format(name)]
        for values, value in samples:
            labels = ",".join('{}="{}"'.format(*pair) for pair in zip(known[name]["labels"], map(escaped, values)))
            lines.append("{}{{{}}} {!r}".format(name, labels, float(value)))
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    return text[:LABEL].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def as_json(told: Dict[str, Any]) -> str:
    kept = {name: value for name, value in told.items() if name != "said"}
    return compact(kept) + "\n"
