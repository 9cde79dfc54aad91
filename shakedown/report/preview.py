"""What a run would do, as a dry run shows it: changes, reboots and logins, the time, the job, and what nodes lack."""

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from shakedown.common.frozen import Frozen
from shakedown.common.lists import grouped
from shakedown.common.text import counted, duration, printable
from shakedown.hosts import few, folded
from shakedown.jobs.launch import LaunchPlan
from shakedown.jobs.plan.render import brief, render, sizes_of, words_of
from shakedown.report.formats import Plans
from shakedown.report.terminal import shown_values
from shakedown.state.findings import Finding

WIDTH = 100
CHANGES = 20  # lines
INTERFACES = 2  # names of the interfaces to the master that have a line each
COMMAND = 4  # lines of the first node's command
_VALUES = 3  # of what is now
_LABEL = 12  # columns


class Change(Frozen):
    """One change that is declared, and the nodes that it is for."""

    names: list[str]  # of findings
    operation: str
    was: list[str]
    wanted: str
    nodes: list[str]


class Lacking(Frozen):
    """What nodes lack for the job, in words."""

    text: str
    nodes: list[str]


class Duration(Frozen):
    """How long the run will take, as far as that is known; None: unknown. `source` says what is reckoned with."""

    seconds: float | None = None
    source: str = ""


class Preview(Frozen):
    """All that a dry run shows."""

    changes: list[Change] = []
    reboots: list[str] = []  # nodes that the run reboots
    waiting: list[str] = []  # nodes whose reboot the desired state does not allow
    logins: list[str] = []  # nodes whose connection is made again after the changes
    by_hand: list[str] = []  # nodes without a login of ours, where a person has to log in again
    duration: Duration = Duration()
    jobs: dict[str, LaunchPlan] = {}  # by their names, as they will be once nothing stands in their way
    hindrances: list[str] = []  # what stands in their way now
    looked_at: list[str] = []  # nodes that were looked at for what the job needs
    lacking: list[Lacking] = []


def changes_of(findings: Sequence[Finding]) -> list[Change]:
    """Return the changes that operations make for findings. What the same nodes get in the same way is one change."""
    by_name: dict[tuple[str, str, str], dict[str, str]] = {}
    for finding in findings:
        wanted, was = shown_values(finding)
        operation = (finding.remedy.operation if finding.remedy else None) or ""
        by_name.setdefault((finding.name, operation, wanted), {})[finding.node] = was
    alike = grouped(
        ((name.partition(".")[0], operation, wanted, tuple(was_of.items())), name)
        for (name, operation, wanted), was_of in by_name.items()
    )
    return [
        Change(
            names=names,
            operation=operation,
            was=list(dict.fromkeys(was for _, was in was_of)),
            wanted=wanted,
            nodes=[node for node, _ in was_of],
        )
        for (_, operation, wanted, was_of), names in alike.items()
    ]


def plans(document: Plans) -> Iterator[str]:
    """Yield each launch plan in plain lines."""
    show = render if document.whole else brief
    yield from (show(plan, name) for name, plan in document.plans.items())


def lines(preview: Preview, nodes: int, whole: bool = False) -> Iterator[str]:
    """Yield the lines for a terminal; of jobs with the `whole` command, as a shell takes it."""
    yield "dry run: nothing is changed"
    yield from _changes(preview.changes, nodes)
    for label, text in _course(preview).items():
        yield from _labelled(label, text)
    for names in grouped((name.partition("/")[0], name) for name in preview.jobs).values():
        yield ""
        yield from _job(preview.jobs[names[0]], len(names), whole)
    if preview.hindrances:
        yield from _labelled("starts", f"not yet: {'; '.join(preview.hindrances)}")
    if preview.looked_at:
        yield from _preflight(preview)


def shared(nodes: Sequence[str], of: int) -> str:
    """Return on which nodes something is. What most of several nodes share is no node's own."""
    common = len(nodes) > 1 and 2 * len(nodes) > of
    return f"{len(nodes)} of {counted(of, 'node')}" if common else printable(few(nodes))


def _changes(changes: Sequence[Change], nodes: int) -> Iterator[str]:
    if not changes:
        yield " no change"
    rows = []
    for change in changes:
        check, _, detail = change.names[0].partition(".")
        details = folded(name.partition(".")[2] for name in change.names)
        was = " | ".join(change.was[:_VALUES]) + (" | ..." if len(change.was) > _VALUES else "")
        texts = (f"{check}.{details}" if detail else check, f"{was} -> {change.wanted}")
        rows.append((*map(printable, texts), _where(change.nodes, nodes)))
    first = min(max((len(name) for name, _, _ in rows), default=0), 28)
    last = max((len(where) for _, _, where in rows[:CHANGES]), default=0)
    for name, values, where in rows[:CHANGES]:
        text = f" ~ {name:<{first}}  {values}"
        room = WIDTH - last - 2
        yield f"{text if len(text) <= room else f'{text[: room - 3]}...':<{room}}  {where}"
    if rest := rows[CHANGES:]:
        yield from _labelled("", f"and {counted(len(rest), 'more change')}: {', '.join(name for name, _, _ in rest)}")


def _where(names: Sequence[str], nodes: int) -> str:
    return counted(nodes, "node") if len(names) == nodes else printable(few(names, 30))


def _course(preview: Preview) -> dict[str, str]:
    """Return what the run needs besides the changes, by the labels of the lines."""
    reboots = [f"{printable(few(preview.reboots))} by this run"] if preview.reboots else []
    if preview.waiting:
        reason = "by you, since system.reboot is never; the run ends as drift"
        reboots.append(f"{printable(few(preview.waiting))} {reason}")
    seconds, source = preview.duration.seconds, preview.duration.source
    logins = [f"{printable(few(preview.logins))}: connected again after the changes"] if preview.logins else []
    logins += [f"{printable(few(preview.by_hand))}: by you; the run ends as drift"] if preview.by_hand else []
    return {
        "reboots": "; ".join(reboots) or "none",
        "new logins": "; ".join(logins) or "none",
        "expected": f"{'unknown' if seconds is None else f'about {duration(seconds)}'}: {source}",
    }


def _job(plan: LaunchPlan, jobs: int, whole: bool) -> Iterator[str]:
    first = plan.nodes[0]
    where = f"{counted(jobs, 'job')}, each on one node" if jobs > 1 else f"{counted(len(plan.nodes), 'node')}"
    yield f"job {plan.recipe} ({plan.runtime}) on {where}"
    if plan.image:
        yield from _labelled("image", plan.image)
    for label, text in [] if plan.has_report else sizes_of(plan):
        yield from _labelled(label, text)
    alike: dict[str, dict[str, list[str]]] = {}
    for node in plan.nodes if plan.world_size else ():
        gid = "" if node.gid_index is None else f", GID index {node.gid_index}"
        over = alike.setdefault(f"{folded(node.hca) or 'none: sockets'}{gid}", {})
        over.setdefault(node.interface or "?", []).append(node.name)
    for text, over in alike.items():
        rows = over if whole or len(over) <= INTERFACES else {f"{len(over)} interfaces": [*chain(*over.values())]}
        for interface, names in rows.items():
            row = f"{text} over {interface}"
            yield from _labelled("HCAs", f"{row} on {_where(names, len(plan.nodes))}" if jobs == 1 else row)
    command = printable(shlex.join(first.command), lines=True)
    if whole:
        yield from (f" {'command':<{_LABEL}} of {printable(first.name)}:", command)
    else:
        yield from _labelled("command", f"of {first.name}: {command}", COMMAND, " ... (-v: whole)")
    yield from _labelled("needs", ", ".join(words_of(need) for need in first.needs))


def _preflight(preview: Preview) -> Iterator[str]:
    of = len(preview.looked_at)
    bad = {node for lack in preview.lacking for node in lack.nodes}
    have = "has" if of - len(bad) == 1 else "have"
    yield from _labelled("preflight", f"{of - len(bad)} of {counted(of, 'node')} {have} what the job needs")
    for lack in preview.lacking:
        where = shared(lack.nodes, of)
        advice = ": check the inventory or the image" if where.endswith(("node", "nodes")) and " of " in where else ""
        yield from _labelled("", f"{where}: {printable(lack.text)}{advice}")


def _labelled(label: str, text: str, most: int = 3, placeholder: str = " ...") -> Iterator[str]:
    margin = " " * (_LABEL + 2)
    yield from textwrap.wrap(
        printable(text),
        WIDTH,
        initial_indent=f" {label:<{_LABEL}} ",
        subsequent_indent=margin,
        max_lines=most,
        placeholder=placeholder,
        break_on_hyphens=False,
    )


def gaps(texts: Mapping[str, Sequence[str]]) -> list[Lacking]:
    """Return what the nodes lack, in the order of how many lack the same. `texts`: of each node."""
    found = grouped((text, node) for node, own in texts.items() for text in own)
    return [Lacking(text=text, nodes=nodes) for text, nodes in sorted(found.items(), key=lambda item: -len(item[1]))]
