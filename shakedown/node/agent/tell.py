"""Where the agent's verdict goes: a file for programs, a line for what has to be quick, node_exporter's folder, the
journal. Each is written whole or not at all, and nowhere where another user could redirect it."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Iterator, List, Tuple

from shakedown.common.text import printable

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


def verdict_line(result: Dict[str, Any]) -> str:
    """Return `VERDICT SECONDS STALE MESSAGE`: the sh command answers from it, without a Python."""
    return "{} {:.0f} {} {}\n".format(result["verdict"], result["at"], result["stale_after_s"], message(result))


def message(result: Dict[str, Any]) -> str:
    """Return what is not as it should be, in at most SHORT bytes."""
    names = [finding["name"] for finding in result["findings"] if finding["verdict"] == result["verdict"]]
    if result["verdict"] == "ok":
        words = "shakedown: ok, {} findings".format(len(result["findings"]))
    elif result["why"]:
        words = "shakedown: {}: {}".format(result["verdict"], result["why"])
    else:
        words = "shakedown: {} {}: {}".format(len(names), result["verdict"], " ".join(names))
    plain = "".join(letter if " " <= letter <= "~" else "?" for letter in words)
    return plain if len(plain) <= SHORT else plain[: SHORT - 3] + "..."


def journal(result: Dict[str, Any]) -> Iterator[str]:
    """Yield a line for each finding that is not ok, with syslog's level in front (sd-daemon(3)), and a last line. Users
    of the node choose names of processes and of files; such a name begins no line of the journal."""
    for line in _lines(result):
        yield printable(line, LONGEST)


def _lines(result: Dict[str, Any]) -> Iterator[str]:
    for finding in not_ok(result):
        yield "<{}>{}".format(SEVERITY[finding["verdict"]], result["said"][finding["name"]])
    for repair in result["remedied"]:
        words = "put back: " + repair["did"] if repair["did"] else "not put back: " + repair["left"]
        yield "<5>{}: {}".format(repair["finding"], words)
    yield from ("<4>" + problem for problem in result["not_told"])
    words = "{verdict}: {counts} in {wall_s:.2f} s, {cpu_s:.3f} s of CPU, desired state {desired}".format(
        verdict=result["verdict"],
        counts=", ".join("{} {}".format(count, name) for name, count in result["counts"].items() if count),
        wall_s=result["wall_s"],
        cpu_s=result["cpu_s"],
        desired=result["desired"][:12],
    )
    yield "<{}>{}".format(SEVERITY.get(result["verdict"], 6), words + (": " + result["why"] if result["why"] else ""))


def not_ok(result: Dict[str, Any]) -> List[Any]:
    return [finding for finding in result["findings"] if finding["verdict"] != "ok"]


def metrics(result: Dict[str, Any], known: Dict[str, Any]) -> str:
    """Return Prometheus' text format. Names, words and labels are those of the controller's report (`known`)."""
    node, bad = result["node"], not_ok(result)
    causes = [(finding, [node, finding["name"]]) for finding in bad if finding["verdict"] != "warn"]
    rows: List[Tuple[str, List[Tuple[List[str], float]]]] = [
        ("shakedown_verdict", [([word], word == result["verdict"]) for word in ("ok", "drift", "fail", "unknown")]),
        ("shakedown_finished_timestamp_seconds", [([], result["at"])]),
        ("shakedown_findings", [([node, word], result["counts"][word]) for word in VERDICTS]),
        ("shakedown_finding_not_ok", [([node, finding["name"], finding["verdict"]], 1) for finding in bad]),
        ("shakedown_suspect", [(names, 1) for finding, names in causes if finding["verdict"] == "fail"]),
        ("shakedown_cause_info", [([*names, finding["verdict"], remedy(finding)], 1) for finding, names in causes]),
        ("shakedown_agent_report_timestamp_seconds", [([node, result["verdict"], digest(result)], result["at"])]),
    ]
    lines = []
    for name, samples in rows:
        if samples:
            lines += ["# HELP {} {}".format(name, known[name]["help"]), "# TYPE {} gauge".format(name)]
        for values, value in samples:
            every = map(escaped, [result["inventory"], "agent", *values])
            labels = ",".join('{}="{}"'.format(*pair) for pair in zip(known[name]["labels"], every))
            lines.append("{}{{{}}} {!r}".format(name, labels, float(value)))
    return "\n".join(lines) + "\n"


def digest(result: Dict[str, Any]) -> str:
    """Return the digest of what was found: the same as long as each finding has its verdict, by the same desired state
    and program. Values of what is ok (free space, an offset of the clock) change all the time."""
    found = sorted((finding["name"], str(finding["verdict"])) for finding in result["findings"])
    text = compact([found, result["why"], result["desired"], result["program"]])
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def remedy(finding: Any) -> str:
    """Return what to do about a finding."""
    return printable(finding["remedy"]["text"], LABEL) if finding["remedy"] else ""


def escaped(text: str) -> str:
    return text[:LABEL].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def as_json(result: Dict[str, Any]) -> str:
    kept = {name: value for name, value in result.items() if name != "said"}
    return compact(kept) + "\n"
