"""What is measured: each case with its command, and the check that it did its work."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import ansible_peer, measure
from bench.measure import Cost, Outcome
from bench.nodes import BenchError, Nodes
from bench.settings import Settings

PROJECT = Path(__file__).resolve().parents[1]
FLOOR, DRIFT, DEPLOY, ANSIBLE, PROBE = "floor", "drift", "deploy", "ansible", "probe"
CHANGE = "change"
SESSION = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"}  # as sshd gives it to root


@dataclass(frozen=True)
class Case:
    """One command. `wrong` says why an outcome is not what the case is for, or nothing; `after` runs unmeasured."""

    name: str
    what: str
    argv: list[str]
    wrong: Callable[[Outcome], str | None]
    env: Mapping[str, str] = field(default_factory=dict)
    after: Callable[[], None] = lambda: None

    def cost(self, nodes: Nodes) -> Cost:
        """Run it once. Raises BenchError where it did not do its work: its time would mean nothing."""
        before = nodes.cpu_s()
        outcome = measure.run(self.argv, nodes.scratch, self.env)
        self.after()
        why = self.wrong(outcome)
        if why is not None:
            raise BenchError(f"{self.name}: {why}\n{outcome.output[-2000:]}")
        return replace(outcome.cost, nodes_cpu_s=nodes.cpu_s() - before)


def cases(nodes: Nodes, settings: Settings, names: list[str]) -> list[Case]:
    """The named cases over these nodes, in the order in which they take turns."""
    binaries = Path(sys.executable).parent
    inventory = str(write_inventory(nodes, settings, "bench", nodes.addresses))
    empty = nodes.scratch / "nothing.py"
    empty.write_text('"""No operations."""\n')
    pyinfra, count = [str(binaries / "pyinfra"), inventory], len(nodes.addresses)
    megatron = str(PROJECT / "deploy" / "megatron.py")
    known = {
        FLOOR: Case(FLOOR, "pyinfra connects and does nothing", [*pyinfra, str(empty), "-y"], _exit_code),
        DRIFT: Case(
            DRIFT,
            "shakedown drift, all checks",
            [str(binaries / "shakedown"), "drift", inventory, "--nodes", str(count)],
            _exit_code,
        ),
        DEPLOY: Case(DEPLOY, "deploy/megatron.py without changes", [*pyinfra, megatron, "-y"], _unchanged),
        PROBE: Case(
            PROBE, "the probe on the node, without SSH", nodes.inside("sh", "-c", _probe()), _document, SESSION
        ),
    }
    if ANSIBLE in names:
        ansible_peer.write(nodes, settings.playbook())
        playbook = [str(nodes.scratch / "playbook.json"), "--inventory", str(nodes.scratch / "hosts.json"), "--check"]
        known[ANSIBLE] = Case(
            ANSIBLE,
            f"ansible-core {ansible_peer.VERSION}, the same settings",
            [str(ansible_peer.installed() / "ansible-playbook"), *playbook],
            lambda outcome: recap(outcome, count),
            ansible_peer.environment(nodes),
            lambda: ansible_peer.hang_up(nodes),
        )
    return [known[name] for name in names]


def prepare(nodes: Nodes, settings: Settings) -> Cost:
    """Bring the nodes into the state that is asked for, with our own deploy, which changes each of them."""
    inventory = write_inventory(nodes, settings, "prepare", nodes.addresses)
    argv = [str(Path(sys.executable).with_name("pyinfra")), str(inventory), str(PROJECT / "deploy" / "megatron.py")]
    return Case(CHANGE, "deploy/megatron.py changes each node", [*argv, "-y"], _exit_code).cost(nodes)


def write_inventory(nodes: Nodes, settings: Settings, name: str, addresses: list[str]) -> Path:
    """A pyinfra inventory over the addresses that looks at nothing of the user's ~/.ssh."""
    (nodes.scratch / "ssh_config").touch()
    data = {
        "ssh_user": "root",
        "ssh_port": nodes.port,
        "ssh_key": str(nodes.key),
        "ssh_known_hosts_file": str(nodes.known_hosts),
        "ssh_config_file": str(nodes.scratch / "ssh_config"),
        "ssh_strict_host_key_checking": "yes",
        "ssh_look_for_keys": False,
        "ssh_allow_agent": False,
        **settings.desired(),
    }
    path = nodes.scratch / f"{name}.py"
    path.write_text(f"nodes = ({addresses!r}, {data!r})\n")
    return path


def _probe() -> str:
    from shakedown.transport import bundle

    return bundle.launch_command()


def _exit_code(outcome: Outcome) -> str | None:
    return f"exit code {outcome.code}" if outcome.code else None


def _unchanged(outcome: Outcome) -> str | None:
    return _exit_code(outcome) or (None if "nothing to change" in outcome.output else "there was something to change")


def _document(outcome: Outcome) -> str | None:
    whole = outcome.output.startswith('{"schema_version"')
    return _exit_code(outcome) or (None if whole else "no node state: was the checkout changed during the run?")


def recap(outcome: Outcome, hosts: int) -> str | None:
    """What Ansible's last lines say against its run: every host has to be ok, with nothing to change."""
    rows = re.findall(r"^\S+ +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", outcome.output, re.M)
    clean = [row for row in rows if int(row[0]) > 0 and not any(int(number) for number in row[1:])]
    if outcome.code or len(clean) != hosts:
        return f"exit code {outcome.code}, {len(clean)} of {hosts} hosts ok and unchanged"
    return None
