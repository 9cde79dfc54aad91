"""The agent: a timer on each node that checks it without the controller."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.context import host

from shakedown import node
from shakedown.agent import compile as compiled
from shakedown.agent import program
from shakedown.facts.settings import Contents
from shakedown.node.agent.remedies import REMEDIED
from shakedown.node.agent.run import CONFIG, FOLDER, LINE, METRICS, VERDICT
from shakedown.operations.atomic import on_node
from shakedown.operations.boot import SYSTEMD
from shakedown.operations.commands import Commands, refuse, show_change, verify

HOME = "/usr/local/lib/shakedown-agent"
HEALTH = "/usr/local/libexec/shakedown-health"
UNITS = "/etc/systemd/system"
SERVICE = f"{UNITS}/shakedown-agent.service"
TIMER = f"{UNITS}/shakedown-agent.timer"
ENABLED = f"{UNITS}/timers.target.wants/shakedown-agent.timer"
REPORTED = [f"{FOLDER}/{name}" for name in (VERDICT, LINE)]

_ASSETS = Path(node.__file__).parent / "assets"
HEALTH_TEXT = (_ASSETS / "shakedown-health").read_text("utf-8")
_ROOTS = "the agent is root's: use _sudo=True"
_TO_CHANGE = "CAP_SYS_MODULE CAP_CHOWN CAP_FOWNER"


@operation()
def present(document: Mapping[str, Any]) -> Commands:
    """
    Have the agent on the node, with what it compares with, and its timer running.

    + document: what is compiled for this node, ``shakedown.agent.compile.compiled``

    **Example:**

    .. code:: python

        from shakedown.operations import agent
        agent.present(
            name="Check by a timer",
            document=compiled("node01", desired, state.account, program.build().digest),
        )
    """
    built = program.build()
    files = wanted_files(document)
    run = f"{HOME}/{built.digest}/run"
    here = host.get_fact(Contents, patterns=[*files, run, ENABLED, SYSTEMD])
    if SYSTEMD not in here:
        yield refuse("this node does not run systemd, so there is no timer for the agent")
        return
    changed = [path for path, (text, _) in files.items() if here.get(path) != text.splitlines()]
    if not changed and run in here and ENABLED in here:
        host.noop("the agent is there, with this desired state")
        return
    for path in changed:
        show_change(path, here.get(path), files[path][0].splitlines())
    yield FunctionCommand(on_node, (installation(HOME, files),), {})
    enabled = "systemctl daemon-reload && systemctl enable --now shakedown-agent.timer"
    yield StringCommand(f"{enabled} && systemctl start shakedown-agent.service")
    yield verify(lambda: _wrong(document))


@operation()
def absent() -> Commands:
    """
    Take the agent away, with its timer, its verdicts and its metrics.

    **Example:**

    .. code:: python

        from shakedown.operations import agent
        agent.absent(name="No agent")
    """
    here = host.get_fact(Contents, patterns=[HOME, SERVICE, TIMER, HEALTH, CONFIG, *REPORTED])
    if not here:
        host.noop("there is no agent")
        return
    timer = TIMER in here
    if timer:
        stop = "systemctl disable --now shakedown-agent.timer; systemctl stop shakedown-agent.service; true"
        yield StringCommand(stop)
    paths = [TIMER, SERVICE, HEALTH, CONFIG, *REPORTED, f"{FOLDER}/{REMEDIED}", *_metrics(here.get(CONFIG))]
    removal = {"do": "remove", "home": HOME, "paths": paths, "folders": ["/etc/shakedown", FOLDER], "root": _ROOTS}
    yield FunctionCommand(on_node, (removal,), {})
    if timer:
        yield StringCommand("systemctl daemon-reload; systemctl reset-failed shakedown-agent.service 2>/dev/null; true")
    left = "something of the agent is still there"
    yield verify(lambda: left if host.get_fact(Contents, patterns=[HOME, TIMER]) else None)


def _metrics(config: Iterable[str] | None) -> list[str]:
    """Return where the agent that is there writes its metrics, by what was compiled for it."""
    try:
        folder = json.loads("\n".join(config or []))["agent"]["textfile"]
    except (ValueError, KeyError, TypeError):
        return []
    return [f"{folder}/{METRICS}"] if isinstance(folder, str) and folder.startswith("/") else []


def installation(home: str, files: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the job of assets/files.py: put the program below a folder, and the files (path -> text and mode)."""
    built = program.build()
    made = {"do": "install", "home": home, "digest": built.digest, "archive": built.archive, "root": _ROOTS}
    return made | {"run": start(f"{home}/{built.digest}"), "files": dict(files)}


def start(place: str) -> str:
    """Return the text of the file that starts the program in a folder."""
    return _filled("shakedown-agent-run", {"@PLACE@": place})


def wanted_files(document: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Path -> text and mode of all that is put on a node besides the program."""
    made = units(document["agent"], f"{HOME}/{document['program']}/run")
    files = {CONFIG: (compiled.text(dict(document)) + "\n", "0600"), HEALTH: (HEALTH_TEXT, "0755")}
    return files | {f"{UNITS}/{name}": (text, "0644") for name, text in made.items()}


def units(agent: Mapping[str, Any], run: str) -> dict[str, str]:
    """Return the texts of the service and of its timer. `run`: the file that starts the program."""
    words = {
        "@RUN@": run,
        "@TIMEOUT@": str(agent["timeout_s"]),
        "@MEMORY@": str(agent["memory_bytes"]),
        "@EVERY@": str(agent["every_s"]),
        "@DELAY@": str(agent["delay_s"]),
        "@TO_CHANGE@": "" if agent["remedy"] == "safe" else f" {_TO_CHANGE}",
    }
    return {name: _filled(name, words) for name in ("shakedown-agent.service", "shakedown-agent.timer")}


def _filled(asset: str, words: Mapping[str, str]) -> str:
    text = (_ASSETS / asset).read_text()
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def _wrong(document: Mapping[str, Any]) -> str | None:
    """Return why the agent has not reported, once, by the desired state of now; None: it has."""
    lines = host.get_fact(Contents, patterns=[REPORTED[0]]).get(REPORTED[0])
    look = "see `journalctl -u shakedown-agent`"
    try:
        found = json.loads("\n".join(lines or []))
        if found["desired"] == document["digest"] and found["program"] == document["program"]:
            return None
        return f"the agent was started and its verdict is an older one: {look}"
    except (ValueError, KeyError, TypeError):
        return f"the agent was started and has left no verdict: {look}"
