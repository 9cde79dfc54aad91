"""What RCCL's and NCCL's RAS says of the processes of a job that do not answer it.

Each process of a job has a RAS thread, and any of them answers for the whole job with a text for people: "Errors" names
processes and ranks whose data is missing, or that are considered dead (docs.nvidia.com/deeplearning/nccl,
troubleshooting/ras; the same in RCCL 2.28.3 of ROCm 7). "Warnings" are not read: counts of operations that differ are
usual while a job runs, and how newer versions write them has no documented sample.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from shakedown.common.text import printable
from shakedown.evidence.hangs.model import Hang

_LIMIT = 256 << 10  # characters of one answer, as a node keeps them
_LINES = 2000
_SHOWN = 8
_ACCUSERS = 2  # nodes whose answers say so, where it is said of another one: anybody may answer at RAS's port
_SECTION = re.compile(r"(Errors|Warnings)\s*")
_PROCESS = re.compile(r"\s+Process (\d{1,10}) on node (\S{1,255}) managing GPUs? ")
_RANK = re.compile(r"\s+Rank (\d{1,7}) -- GPU \S{1,40} managed by process (\d{1,10}) on node (\S{1,255})\s*")


class Missing(NamedTuple):
    """A process that does not answer: on a host (an address), and its ranks where they are told."""

    host: str
    pid: int
    rank: int | None = None


def missing(text: str) -> set[Missing]:
    """Read the processes that one answer reports as missing."""
    found, section = set[Missing](), ""
    for line in text[:_LIMIT].splitlines()[:_LINES]:
        if header := _SECTION.fullmatch(line):
            section = header[1]
        elif section == "Errors" and (process := _PROCESS.match(line)):
            found.add(Missing(process[2], int(process[1])))
        elif section == "Errors" and (rank := _RANK.fullmatch(line)):
            found.add(Missing(rank[3], int(rank[2]), int(rank[1])))
    return found


def of_answers(
    answers: Mapping[str, str], addresses: Mapping[str, str], given: Mapping[str, range] | None = None
) -> Hang | None:
    """Compare the nodes' answers; None: no process is missing. A node is named if the answers report no other node, and
    come from that node or from two others. Otherwise every node is in question that an answer comes from or reports.
    `addresses`: address -> node; `given`: the ranks of each node."""
    silent = {node: missing(text) for node, text in answers.items()}
    accused = {process.host: addresses.get(process.host) for absent in silent.values() for process in absent}
    if not accused:
        return None
    tell = sorted(node for node, absent in silent.items() if absent)
    processes = sorted({(process.host, process.pid) for absent in silent.values() for process in absent})
    shown = ", ".join(
        f"process {pid} on {addresses.get(host, printable(host, 60))}" for host, pid in processes[:_SHOWN]
    )
    text = f"RAS on {', '.join(tell[:_SHOWN])} has no answer from {shown}"
    names = {name for name in accused.values() if name}
    if len(names) != len(accused):  # an address that is no node's
        return Hang(why="no answer", text=text)
    if len(names) == 1:
        (name,) = names
        if name in tell or len(tell) >= _ACCUSERS:
            ranks = {process.rank for absent in silent.values() for process in absent if process.rank is not None}
            mine = [rank for rank in sorted(ranks) if given is None or rank in given.get(name, ())]
            return Hang(why="no answer", culprits=tuple(mine), nodes=(name,), missing=tuple(mine), text=text)
    return Hang(why="no answer", nodes=tuple(sorted({*names, *tell})), text=text)


def together(records: Hang | None, ras: Hang | None) -> Hang | None:
    """Join the findings of the ranks' own records and of RAS: RAS decides where the records name no rank, or the same
    node."""
    if records is None or ras is None:
        return records or ras
    more = {"facts": (*records.facts, ras.text)}
    decides = len(ras.nodes) == 1 and not records.culprits
    if decides and (not records.nodes or ras.nodes[0] in records.nodes):
        return ras.model_copy(update={"facts": (records.text, *records.facts), "collective": records.collective})
    return records.model_copy(update=more)
