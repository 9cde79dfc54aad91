"""One check of this node: read it, compare it with what was compiled for it, tell.

    run.py [--config FILE] [--state FOLDER] [--root FOLDER]

The exit code says whether the check itself was made, not what it came to: 0, 1 where it could not be, 75 where
another one is under way. What cannot be checked is reported as unknown.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .. import account
from ..__main__ import node_state
from ..safe_files import Busy, Unsafe, locks, sound
from ..tree import Part, Tree, is_unreadable
from . import models, tell
from .remedies import put_back, reason

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
    known, users = state["account"], account.rows(tree, "/etc/passwd")
    groups = account.groups_at_login(users, account.rows(tree, "/etc/group"), user)
    known.update(user=user, home=account.home_of(users, user, ""), groups=groups, at_login=list(groups))
    for limit, setting in account.read_limits(tree, known).items():
        at_login = setting["persisted"]
        state["limits"][limit] = {"running": NOT_SAID if at_login is None else at_login, "persisted": at_login}
    for device in device_files(state["devices"]) if user != "root" else []:
        device["openable"] = may_open(device, user, groups)


def device_files(devices: Part) -> List[Part]:
    files = [devices["kfd"]] + [
        device for name in ("dri", "infiniband") if not is_unreadable(devices[name]) for device in devices[name]
    ]
    return [device for device in files if not is_unreadable(device)]


def may_open(device: Part, user: str, groups: List[str]) -> bool:
    """Return whether a user may read and write a device, as the kernel decides: owner, group, mode; the first that
    fits."""
    mode = int(device["mode"], 8)
    if device["owner"] == user:
        return mode & 0o600 == 0o600
    if device["group"] in groups:
        return mode & 0o060 == 0o060
    return mode & 0o006 == 0o006


def report(document: Dict[str, Any], findings: List[Any], verdict: str, problem: str, began: float) -> Dict[str, Any]:
    """Return the report of a check. `problem`: the reason that there was none; the verdict is then unknown."""
    counts = dict.fromkeys(tell.VERDICTS, 0)
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
            tell.put(textfile, tell.METRICS, tell.metrics(result, document["metrics"]))
        except (Unsafe, OSError) as error:
            result["not_told"].append("no metrics: {}".format(reason(error)))
    try:
        tell.put(state, tell.VERDICT, tell.as_json(result), 0o600)  # it quotes what root alone may read
        tell.put(state, tell.LINE, tell.verdict_line(result))
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
    problem, folder = "", options.get("--state", tell.FOLDER)
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
    for line in tell.journal(result):
        print(line)
    return 0 if written and not problem else 1


def main(evaluate: Evaluate, worst: Worst, arguments: Optional[List[str]] = None) -> int:
    """Check once. `evaluate` compares (desired, state, node); `worst` gives the worst of some verdicts: both import
    what `models` stands for, so neither is imported before that is there."""
    words = sys.argv[1:] if arguments is None else arguments
    os.umask(0o022)
    try:
        held = locks().lock("agent.lock", 0)
    except Busy as error:
        print("<5>another check is under way: {}".format(error))
        return BUSY
    except (Unsafe, OSError) as error:
        print("<3>no check: {}".format(reason(error)))
        return 1
    code = check(dict(zip(words[::2], words[1::2])), evaluate, worst)
    os.close(held)
    return code
