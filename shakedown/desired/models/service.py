"""Nodes in service: runs in batches, repair, the agent, waivers, signatures."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from shakedown.common.section import MountPath, Positive, Section, Text, key
from shakedown.desired.values import SIZE, Amount, Day, SchedulerName, Some
from shakedown.hosts import globs


class Rolling(Section):
    """How `shakedown run` goes through the nodes: the same on every host of a run, and the command line wins."""

    batch: Some | None = key(
        None, "nodes that are changed at a time, a number or a share of all; None: all", "10%", unit="nodes"
    )
    max_failed: Amount | None = key(
        None,
        "more failed nodes than this, a number or a share, end the run; None: a batch of which none came through does",
        "5%",
        unit="nodes",
    )
    tries: Annotated[int, Field(ge=1, le=20)] = key(
        5,
        "tries to connect to a node, after pauses of 5, 10, 20 and so on to 120 s, while others are worked on",
        8,
        unit="tries",
    )


class Bmc(Section):
    """The site's own command that takes a node's power away and gives it back. It runs on the controller."""

    command: Annotated[list[Text], Field(min_length=1, max_length=64)] = key(
        ...,
        "program and arguments, run without a shell; {node} is the node's name in the inventory",
        ["/usr/local/sbin/bmc", "{node}", "cycle"],
    )
    password_file: Text | None = key(
        None, "file of one line on the controller, for its owner alone (chmod 600)", "~/.config/bmc.password"
    )
    password_env: Text | None = key(
        None, "variable of the controller with the password, in place of password_file", "BMC_PASSWORD"
    )
    password_as: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = key(
        "BMC_PASSWORD", "variable in which the command gets the password", "IPMI_PASSWORD"
    )
    timeout_s: Positive = key(120, "time of the command", 120, unit="s")
    unasked: bool = key(
        False, "also a node that does not answer and of which no scheduler says that it has no job", True
    )


class Service(Section):
    """The way back into service, `shakedown service`: what may be done with nodes that are suspect."""

    scheduler: SchedulerName | None = key(
        None, "who is asked whether a node has a job, and has nodes drained and resumed", "slurm"
    )
    drain: Literal["never", "propose", "yes"] = key(
        "never",
        "whether nodes that a run names are drained in the scheduler, and resumed once a later run has cleared them",
        "yes",
    )
    at_once: Some = key(
        "1",
        "nodes that may be out of service together, drained by Shakedown or under repair: a number, or a share of all",
        "5%",
        unit="nodes",
    )
    stop_at: Some = key(
        "25%",
        "when more nodes than this are named at once, none is drained; when the repair of more nodes fails within a "
        "day, no other is tried: a number, or a share of all; a single one never stops it",
        "10%",
        unit="nodes",
    )
    rungs: list[Literal["mend", "reload driver", "reboot", "power cycle"]] = key(
        ["mend"], "what --repair may do with a node; what is not allowed is left to a person", ["mend", "reboot"]
    )
    back_s: Positive = key(900, "time in which a node has to be back after a power cycle", 900, unit="s")
    bmc: Bmc | None = key(
        None,
        "how a node's power is taken away and given back",
        {"command": ["/usr/local/sbin/bmc", "{node}", "cycle"], "password_file": "~/.config/bmc.password"},
    )


class Agent(Section):
    """The timer on each node that checks it without the controller, deploy/agent.py."""

    state: Literal["present", "absent"] = key("present", "have the agent on the nodes, or not", "absent")
    every_s: Annotated[int, Field(ge=30, le=86400)] = key(600, "time between two checks of a node", 600, unit="s")
    delay_s: Annotated[int, Field(ge=0, le=3600)] = key(
        120, "at most this much later, at random, so that not all nodes check at the same time", 120, unit="s"
    )
    timeout_s: Annotated[int, Field(ge=10, le=3600)] = key(
        120, "time of one check, after which it is ended", 120, unit="s"
    )
    memory_bytes: Annotated[Positive, SIZE] = key(
        256 << 20, "memory of one check, above which it is ended", "256M", unit="bytes"
    )
    stale_after_s: Positive | None = key(
        None, "age from which a verdict is unknown; None: two checks and a half", 3600, unit="s"
    )
    textfile: MountPath | None = key(
        None,
        "folder of node_exporter's textfile collector on the nodes, root's own; None: no metrics are written",
        "/var/lib/prometheus/node-exporter",
    )
    remedy: Literal["none", "safe"] = key(
        "none",
        "whether the agent puts back what is safe to change; it never loads a driver anew, and never boots",
        "safe",
    )
    remedies_per_day: Annotated[int, Field(ge=1, le=100)] = key(
        3, "how often a day it puts back one thing, after which it only reports", 3
    )

    @property
    def stale_s(self) -> int:
        """Age from which a verdict says nothing about the node any more, seconds."""
        return self.stale_after_s or (5 * (self.every_s + self.delay_s) + 2 * self.timeout_s) // 2


def _expanded(words: list[str]) -> list[str]:
    return [name for word in words for name in globs(word)]


class Waiver(Section):
    """One known exception: what is waived, where, why, by whom, and until when."""

    finding: Text | None = key(
        None, "the finding, or a check for all its findings; or `entry`, one of the two", "rdma_rate"
    )
    entry: Text | None = key(None, "an entry of the catalogue: its lines in the kernel's log", "pcie_aer_corrected")
    hosts: Annotated[list[Text], AfterValidator(_expanded)] = key(
        [], "the nodes: names, ranges, `*`; or `parts`", ["node[01-04]"]
    )
    parts: list[Text] = key(
        [], "serial numbers (of an RDMA device its GUID): holds while the part is in a node", ["3a1fbe0411c2d6b7"]
    )
    reason: Text = key(..., "why it is acceptable", "cable ordered, ticket 4711")
    owner: Text = key(..., "who answers for it", "anna@example.org")
    until: Day = key(..., "the last day, at most 90 days ahead (UTC)", "2026-12-31")

    @model_validator(mode="after")
    def _names_one_thing(self) -> "Waiver":
        if (self.finding is None) == (self.entry is None):
            raise ValueError("either finding or entry")
        if not self.hosts and not self.parts:
            raise ValueError("hosts or parts: a waiver names where it holds")
        return self


class Signing(Section):
    """The site's signature on each run and check that is kept: the same on every host of a run."""

    key_file: Text = key(
        ...,
        "private key of this machine, ECDSA on P-256 in PEM, for its owner alone and without a passphrase",
        "~/.shakedown/site.key",
    )
    require_readings: bool = key(
        False, "a node that does not sign its reading with its SSH host key counts as unreached", True
    )
