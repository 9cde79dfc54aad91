"""One check of this node: read it, compare it with what was compiled for it, tell.

    run.py [--config FILE] [--state FOLDER] [--root FOLDER]

The exit code says whether the check itself was made, not what it came to: 0, 1 where it could not be, 75 where
another one is under way. What cannot be checked is reported as unknown.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from shakedown.common.text import printable

from .. import system
from ..__main__ import node_state
from ..safe_files import Busy, Unsafe, locks, sound
from ..tree import Part, Tree, is_unreadable
from . import models
from .models import as_json as compact
from .remedies import put_back, reason

FOLDER = "/var/lib/shakedown"
VERDICT = "verdict.json"
LINE = "verdict"
METRICS = "shakedown_agent.prom"
SHORT = 80  # bytes of a message that node-problem-detector keeps (max_output_length of its custom plugins)
LABEL = 200  # characters
LONGEST = 4000  # characters of a line of the journal
VERDICTS = ("ok", "warn", "drift", "fail", "unknown")
SEVERITY = {"drift": 5, "unknown": 4, "fail": 3, "warn": 6}  # of syslog: notice, warning, error, informational


def put(folder: str, name: str, text: str, mode: int = 0o644) -> None:
    """Write a file of the agent. Raises Unsafe and OSError."""
    sound(folder, 0o755).write(name, text.encode("utf-8", "replace"), mode)


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
    counts = ", ".join("{} {}".format(count, name) for name, count in result["counts"].items() if count)
    words = "{verdict}: {} in {wall_s:.2f} s, {cpu_s:.3f} s of CPU, desired state {:.12}"
    words = words.format(counts, result["desired"], **result)
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
    return printable(finding["remedy"]["text"], LABEL) if finding["remedy"] else ""


def escaped(text: str) -> str:
    return text[:LABEL].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


CONFIG = "/etc/shakedown/agent.json"
LIMIT = 1 << 20  # bytes of what is compiled for a node
BUSY = 75  # EX_TEMPFAIL of sysexits(3)
SCHEMA_VERSION = 1
NOT_SAID = "not set in limits.d"
Evaluate = Callable[[Any, Any, str], List[Any]]
Worst = Callable[[Sequence[Any]], str]


def read_config(path: str) -> Dict[str, Any]:
    """Read what was compiled for this node. Raises Unsafe, OSError, ValueError."""
    folder, _, name = path.rpartition("/")
    content = sound(folder or "/").read_own(name, LIMIT)
    if content is None:
        raise FileNotFoundError(2, "no desired state was compiled for this node", path)
    document = json.loads(content.decode("utf-8"))
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise ValueError("made by another version of shakedown: run deploy/agent.py again")
    return document


def look(document: Dict[str, Any], tree: Tree, evaluate: Evaluate) -> Tuple[List[Any], Dict[str, Any]]:
    """Read the node and compare. Return the findings of the controller's checks of a single node, and the state."""
    models.take(document)
    state = node_state(tree, document["program"], requested=document["asked"], whole=False)
    as_login(tree, state, document["user"])
    found = evaluate(models.view(document["desired"]), models.view(state), document["node"])
    return found, state


def as_login(tree: Tree, state: Part, user: str) -> None:
    """Put groups and limits of a new session of the user who runs jobs into a state that root has read, and which
    device files the user may open by their modes (access lists are not read). A timer has no such session."""
    known, users = state["account"], system.rows(tree, "/etc/passwd")
    groups = system.groups_at_login(users, system.rows(tree, "/etc/group"), user)
    known.update(user=user, home=system.home_of(users, user, ""), groups=groups, at_login=list(groups))
    for limit, setting in system.read_limits(tree, known).items():
        at_login = setting["persisted"]
        state["limits"][limit] = {"running": NOT_SAID if at_login is None else at_login, "persisted": at_login}
    folders = [state["devices"][name] for name in ("dri", "infiniband")]
    files = [state["devices"]["kfd"], *(file for folder in folders if not is_unreadable(folder) for file in folder)]
    for device in files if user != "root" else []:
        if not is_unreadable(device):
            device["openable"] = may_open(device, user, groups)


def may_open(device: Part, user: str, groups: List[str]) -> bool:
    """Return whether a user may read and write a device: the kernel takes owner, group or mode, the first that fits."""
    shift = 6 if device["owner"] == user else 3 if device["group"] in groups else 0
    return int(device["mode"], 8) >> shift & 0o6 == 0o6


def report(document: Dict[str, Any], findings: List[Any], verdict: str, problem: str, began: float) -> Dict[str, Any]:
    """Return the report of a check. `problem`: the reason that there was none; the verdict is then unknown."""
    counts = dict.fromkeys(VERDICTS, 0)
    for finding in findings:
        counts[str(finding.verdict)] += 1
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "schema_version": SCHEMA_VERSION,
        "node": document.get("node", ""),
        "inventory": document.get("inventory", ""),
        "at": time.time(),
        "verdict": "unknown" if problem else verdict,
        "why": problem,
        "desired": document.get("digest", ""),
        "program": document.get("program", ""),
        "home": document.get("home"),
        "user": document.get("user", ""),
        "stale_after_s": (document.get("agent") or {}).get("stale_s", 1800),
        "counts": counts,
        "findings": findings,
        "said": {finding.name: str(finding) for finding in findings if finding.verdict != "ok"},
        "remedied": [],
        "not_told": [],
        "wall_s": round(time.monotonic() - began, 4),
        "cpu_s": round(sum(usage.ru_utime + usage.ru_stime for usage in spent), 4),
    }


def write(result: Dict[str, Any], document: Dict[str, Any], state: str) -> bool:
    """Leave the verdict where others look; what could not be written is said in those that could."""
    textfile = (document.get("agent") or {}).get("textfile")
    if textfile:
        try:
            if not os.path.isdir(textfile):
                raise FileNotFoundError(2, "no such folder", textfile)
            put(textfile, METRICS, metrics(result, document["metrics"]))
        except (Unsafe, OSError) as error:
            result["not_told"].append("no metrics: {}".format(reason(error)))
    try:
        kept = {name: value for name, value in result.items() if name != "said"}
        put(state, VERDICT, compact(kept) + "\n", 0o600)  # it quotes what root alone may read
        # The sh command answers from this line, without a Python: VERDICT SECONDS STALE MESSAGE.
        put(state, LINE, "{verdict} {at:.0f} {stale_after_s} {}\n".format(message(result), **result))
        return True
    except (Unsafe, OSError) as error:
        result["not_told"].append("no verdict file: {}".format(reason(error)))
        return False


def check(options: Dict[str, str], evaluate: Evaluate, worst: Worst) -> int:
    began = time.monotonic()
    models.stand_in()
    document: Dict[str, Any] = {}
    findings: List[Any] = []
    remedied: List[Any] = []
    problem, folder = "", options.get("--state", FOLDER)
    try:
        document = read_config(options.get("--config", CONFIG))
        tree = Tree(options.get("--root", "/"))
        findings, state = look(document, tree, evaluate)
        remedied = put_back(document, tree, findings, state["modules"]["builtin"], folder)
        if any(finding["did"] for finding in remedied):
            findings, state = look(document, Tree(options.get("--root", "/")), evaluate)  # as it is now
    except Exception as error:  # whatever it is: a node that could not be checked is unknown, and says so
        problem = "{}: {}".format(type(error).__name__, reason(error))
    verdict = "" if problem else worst([finding.verdict for finding in findings])
    result = report(document, findings, verdict, problem, began)
    result["remedied"] = remedied
    written = write(result, document, folder)
    for line in journal(result):
        print(line)
    return 0 if written and not problem else 1


def main(evaluate: Evaluate, worst: Worst, arguments: Optional[List[str]] = None) -> int:
    """Check once. `evaluate` compares (desired, state, node); `worst` gives the worst verdict of some."""
    words = sys.argv[1:] if arguments is None else arguments
    os.umask(0o022)
    try:
        with os.fdopen(locks().lock("agent.lock", 0), "rb"):
            return check(dict(zip(words[::2], words[1::2])), evaluate, worst)
    except Busy as error:
        print("<5>another check is under way: {}".format(error))
        return BUSY
    except (Unsafe, OSError) as error:
        print("<3>no check: {}".format(reason(error)))
        return 1
