"""Which nodes a drift check connects to, by what Prometheus holds of their agents' verdicts.

A node is left out where its agent reports now what it reported when the controller last read the node and found it ok.
Every other node is connected to, and a hundredth of those that are left out, drawn at random: so an agent is found that
repeats itself while its node is bad. What a node exposes decides about that node alone. A series belongs to a node by
the label that Prometheus' own configuration gives the target (contrib/prometheus/scrape.yml), and by no other.
"""

import math
import random
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from importlib.metadata import version
from urllib.parse import urlencode, urlsplit

from pydantic import ValidationError
from pyinfra.api import State

from shakedown.checks.examination import Examination
from shakedown.common.frozen import Frozen
from shakedown.common.prometheus_names import AGENT_REPORT, inventory_label
from shakedown.common.runs_folder import runs_folder
from shakedown.common.text import counted, load_json, printable
from shakedown.desired.models import Agent
from shakedown.desired.problems import InventoryError
from shakedown.runner.inventory import desired_states, hosts_in_limit
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runs.directory import RunDirectory, desired_digest
from shakedown.runs.folder import own
from shakedown.state.findings import Finding, Verdict

TARGET = "shakedown_node"  # label of a target: the node's name in the inventory
DRAWN = 0.01  # of the nodes that are left out, at least one
CLOCK_S = 60  # a node's clock may be this far ahead
LIMIT = 16 << 20  # bytes of an answer; that of 10,000 nodes has 4 MB
PATIENCE_S = 30
_QUERY = f'{AGENT_REPORT}{{source="agent",{TARGET}!=""}}'
_DRAWN = "drawn at random"
_ALL = "without --prometheus every node is connected to"


class Read(Frozen):
    """What the controller found when it last read a node, and the digest that Prometheus had of it."""

    digest: str
    verdict: Verdict
    desired: str = ""  # digest of what was asked of the node, and the version that asked


class Memory(Frozen):
    """The last round over an inventory: agents-DIGEST.json in the folder of runs."""

    inventory: str
    seed: int
    drawn: list[str]
    nodes: dict[str, Read]


class Series(Frozen):
    """What Prometheus holds of one agent."""

    digest: str = ""
    verdict: str = ""
    node: str = ""
    at: float


@dataclass(frozen=True)
class Round:
    """One round: why each node is connected to, and the findings of those that are left out."""

    reasons: Mapping[str, str]
    left_out: Sequence[Finding]
    digests: Mapping[str, str]
    desired: Mapping[str, str]
    memory: Memory

    def __str__(self) -> str:
        counts = Counter(self.reasons.values())
        parts = [f"{count} {reason}" for reason, count in counts.items()]
        whole = counted(len(self.reasons) + len(self.left_out), "node")
        drawn = f" (seed {self.memory.seed})" if counts[_DRAWN] else ""
        return f"connecting to {len(self.reasons)} of {whole}: {', '.join(parts)}{drawn}"

    def keep(self, examination: Examination) -> str:
        """Write down what the nodes were found to be, for the next round. Return why that was not possible."""
        read = {}
        for node in self.reasons:
            digest, desired = self.digests.get(node, ""), self.desired.get(node, "")
            read[node] = Read(digest=digest, verdict=examination.verdict_of(node), desired=desired)
        memory = self.memory.model_copy(update={"nodes": {**self.memory.nodes, **read}})
        folder = runs_folder()
        try:
            RunDirectory(folder).write(_file(memory.inventory), memory.model_dump_json(indent=1) + "\n")
        except OSError as error:
            remedy = "the next round reads every node again: set $SHAKEDOWN_RUNS to a folder that can be written"
            return f"{folder}: this round could not be kept ({error.strerror}): {remedy}"
        return ""


def choose(state: State, url: str) -> Round:
    """Limit a state to the nodes that are worth a connection. Raise InventoryError where Prometheus gives no answer."""
    hosts = hosts_in_limit(state)
    desired = desired_states(state).states
    stale = {host.name: (desired[host.name].agent or Agent()).stale_s for host in hosts}
    memory = _memory(inventory_label(invocation.inventory))
    asked = {host.name: f"{version('shakedown')} {desired_digest({'': desired[host.name]})}" for host in hosts}
    chosen = round_of(stale, _series(url), memory, time.time(), asked=asked)
    if chosen.left_out:
        state.limit_hosts = [host for host in hosts if host.name in chosen.reasons]
    return chosen


def round_of(
    stale: Mapping[str, float],
    held: Mapping[str, Sequence[Series]],
    memory: Memory,
    now: float,
    seed: int | None = None,
    asked: Mapping[str, str] | None = None,
) -> Round:
    """Choose among the nodes: age in seconds at which a report is stale. `asked`: the digest of what is asked now."""
    asked = asked or {}
    seed = secrets.randbits(62) if seed is None else seed
    reasons = {node: _reason(node, held.get(node, ()), memory.nodes.get(node), now, stale[node]) for node in stale}
    for node, last in memory.nodes.items():
        if not reasons.get(node, "new") and last.desired != asked.get(node, ""):
            reasons[node] = "with another desired state, or read by another version"
    trusted = sorted(node for node, reason in reasons.items() if not reason)
    drawn = random.Random(seed).sample(trusted, math.ceil(len(trusted) * DRAWN))
    reasons |= dict.fromkeys(drawn, _DRAWN)
    return Round(
        {node: reason for node, reason in reasons.items() if reason},
        [_left_out(node, held[node][0], now) for node, reason in reasons.items() if not reason],
        {node: series[0].digest for node, series in held.items() if len(series) == 1},
        asked,
        memory.model_copy(update={"seed": seed, "drawn": sorted(drawn)}),
    )


def _reason(node: str, held: Sequence[Series], last: Read | None, now: float, stale_s: float) -> str:
    if last is None:
        return "never read"
    if not last.verdict.passes:
        return "not ok when last read"
    if len(held) != 1:
        return "with several reports in Prometheus" if held else "without a report in Prometheus"
    if held[0].node != node:
        return "with a report of another node"
    if held[0].verdict not in (Verdict.OK, Verdict.WARN):
        return "not ok"
    if not -CLOCK_S <= now - held[0].at <= stale_s:
        return "stale"
    return "" if held[0].digest and held[0].digest == last.digest else "changed"


def _left_out(node: str, series: Series, now: float) -> Finding:
    return Finding(
        name="agent",
        node=node,
        verdict=Verdict.OK,
        wanted="what the agent reported when the node was last read, not too old",
        actual=f"{now - series.at:.0f} s old",
        evidence=f"not connected to: Prometheus holds the digest {printable(series.digest, 64)}, as then",
    )


def _series(url: str) -> dict[str, list[Series]]:
    """Ask Prometheus for the reports of all agents, by the labels of the targets. Raise InventoryError."""
    parts = urlsplit(url)
    shown = printable(url, 200)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InventoryError(f"--prometheus {shown}: expected a URL, as http://prometheus:9090")
    if parts.username or parts.password:
        raise InventoryError("--prometheus: a password in a URL is seen by every user of this machine: leave it out")
    query = f"{parts.path.rstrip('/')}/api/v1/query?{urlencode({'query': _QUERY})}"
    try:
        reach = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = reach(parts.hostname, parts.port, timeout=PATIENCE_S)
        connection.request("GET", query)
        document = load_json(_answer(connection.getresponse()), LIMIT)
        connection.close()
        held: dict[str, list[Series]] = defaultdict(list)
        for row in document["data"]["result"]:
            labels = {name: row["metric"].get(name, "") for name in ("digest", "verdict", "node")}
            held[row["metric"][TARGET]].append(Series(**labels, at=float(row["value"][1])))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, HTTPException) as error:
        words = printable(f"{type(error).__name__}: {error}", 300)
        raise InventoryError(f"--prometheus {shown}: no reports of agents ({words}): {_ALL}") from error
    return held


def _answer(response: HTTPResponse) -> bytes:
    """Return the whole answer. Raise OSError where it does not come in time, or is no answer."""
    if response.status != HTTPStatus.OK:
        raise OSError(f"HTTP {response.status}")
    until, content = time.monotonic() + PATIENCE_S, b""
    while part := response.read1(1 << 16):
        content += part
        if time.monotonic() > until or len(content) > LIMIT:
            raise OSError(f"the answer has not ended after {PATIENCE_S} s or {LIMIT} bytes")
    return content


def _file(inventory: str) -> str:
    return f"agents-{sha256(inventory.encode('utf-8', 'replace')).hexdigest()[:12]}.json"


def _memory(inventory: str) -> Memory:
    """Read the last round; before the first no node was read. Raise InventoryError for a file that others can write."""
    path = runs_folder() / _file(inventory)
    try:
        own(path.parent, path.name)
        memory = Memory.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Memory(inventory=inventory, seed=0, drawn=[], nodes={})
    except (OSError, ValidationError, ValueError) as error:
        raise InventoryError(f"{printable(str(error), 300)}: remove {path}, and every node is read again") from error
    return memory
