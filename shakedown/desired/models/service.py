"""How a run goes through many nodes, and how nodes come back into service."""

from typing import Annotated, Literal

from pydantic import Field

from shakedown.desired.amounts import Amount, Some
from shakedown.desired.models.schedulers import SchedulerName
from shakedown.desired.models.section import Section, key
from shakedown.desired.models.values import Positive
from shakedown.desired.names import Text


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
