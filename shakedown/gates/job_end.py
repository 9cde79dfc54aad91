"""Gates on the job: its end, its logs, its image as the image's page lists it, its recipe."""

import re
from collections.abc import Collection

from shakedown.catalogue import advice
from shakedown.common.lists import grouped
from shakedown.common.text import counted, some
from shakedown.gates.model import Gate, Outcome
from shakedown.gates.observed import Expected, InImage, JobEnd, LogCopies, line_count, logs_of
from shakedown.gates.registry import gate
from shakedown.hosts import few
from shakedown.recipes.documents import published, same_version
from shakedown.state.findings import Verdict
from shakedown.state.images import parse


@gate
def ran_to_its_end(end: JobEnd) -> Outcome | None:
    """No job was stopped, or failed to start; skipped for a job that ended by itself."""
    if not end.stopped:
        return None
    actual, remedy = "never started", "repair what is named, and run again"
    if end.started:
        actual, remedy = "stopped", "see the first node and line; the node's whole log is in the run directory"
    wanted = "the job ends by itself"
    return Outcome(verdict=Verdict.FAIL, wanted=wanted, actual=actual, evidence=end.stopped, remedy=remedy)


@gate
def exit_codes(end: JobEnd) -> Outcome | None:
    """Every rank (or node) ended with 0. Without its code a participant is unknown. The code of a node that the
    controller stopped with the job comes from the stop, and is no failure of the node."""
    if end.exit_codes is None:
        return None
    stopped = [name for name in end.exit_codes if name in set(end.stopped_nodes)]
    codes = {name: code for name, code in end.exit_codes.items() if name not in set(stopped)}
    absent = {name for name in end.participants if name not in codes and name not in set(stopped)}
    unseen = sorted(absent | {name for name, code in codes.items() if code is None})
    failed = {name: code for name, code in codes.items() if code is not None and code != 0}
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if unseen or stopped or not codes else Verdict.OK
    texts = [_ended(name, code) for name, code in failed.items()]
    if stopped:
        texts.append(f"the controller stopped {some(stopped)}")
    if unseen:
        texts.append(f"no exit code of {some(unseen)}")
    if not codes and not unseen and not stopped:
        texts.append("no exit codes")
    actual = {name: codes.get(name) for name in [*codes, *unseen]}
    evidence = "; ".join(texts) or f"all {len(codes)} ended with 0"
    return Outcome(verdict=verdict, wanted=0, actual=actual, evidence=evidence, remedy=advice("unfinished"))


def after_origin(gate: Gate, origin: Collection[str]) -> Gate:
    """Return the gate `exit_codes` of a job whose failure began on the nodes of `origin`. Other nodes that ended with
    an error lost these: they are reported together, behind the origin."""
    codes = gate.actual if isinstance(gate.actual, dict) else {}
    after = {name: code for name, code in codes.items() if code and name not in origin}
    began = f"after the failure began on {few(origin)}"
    gone = {_ended(name, code) for name, code in after.items()}
    kept = [text for text in gate.evidence.split("; ") if text not in gone and not text.endswith(began)]
    own = [text for text in kept if " ended with " in text]
    alike = grouped((code, name) for name, code in after.items())
    others = [f"{few(names)} ended with {code}{_signal(code)} {began}" for code, names in alike.items()]
    return gate.model_copy(update={"evidence": "; ".join([*own, *others, *(text for text in kept if text not in own)])})


def begun_elsewhere(gate: Gate, origin: Collection[str]) -> Gate:
    """Return `ran_to_its_end` of a job whose failure began on `origin`, even if another end was seen first."""
    if gate.actual != "stopped" or any(
        re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", gate.evidence) for name in origin
    ):
        return gate
    evidence = f"the failure began on {few(origin)}; the controller first saw: {gate.evidence}"
    return gate.model_copy(update={"evidence": evidence})


def _ended(name: str, code: int) -> str:
    return f"{name} ended with {code}{_signal(code)}"


def _signal(code: int) -> str:
    """Name the signal: Python says -9 where a shell says 137."""
    names = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
    name = names.get(-code) or names.get(code - 128)
    return f" ({name})" if name else ""


@gate
def logs_complete(copies: LogCopies) -> Outcome:
    """Every node's log is there, and is all that the job said on that node."""
    logs = copies.by_node
    missing = [node for node, log in logs.items() if log is None]
    faults = [f"{node}: {log.incomplete}" for node, log in logs.items() if log and log.incomplete]
    faults += [f"no log of {some(missing)}"] if missing else []
    faults += ["there are no logs"] if not logs else []
    faults += [logs_of(logs, copies.unlogged)] if copies.unlogged else []
    faults += copies.faults
    return Outcome(
        verdict=Verdict.UNKNOWN if faults else Verdict.OK,
        wanted=len(logs) + copies.unlogged,
        actual=sum(log is not None and not log.incomplete for log in logs.values()),
        unit="logs",
        evidence="; ".join(faults) or f"{counted(line_count(logs), 'line')}, as long as on the nodes",
        remedy=advice("unlogged" if copies.unlogged else "incomplete") if faults else None,
    )


@gate
def image_versions(in_image: InImage) -> Outcome | None:
    """Compare the versions that the containers printed with those of the image's page (recipes/images.toml).

    A tag is a name that anybody may give. The gate is skipped for an image that no page lists, and where no container
    printed a version. A component that no container printed is named, and is no difference. A node that printed nothing
    while others did is named, and its image is unknown.
    """
    image = published(parse(in_image.image))
    printed: dict[str, set[str]] = {}
    for component, version in sorted(in_image.printed):
        printed.setdefault(component, set()).add(version)
    if image is None or not printed.keys() & image.versions.keys():
        return None
    listed = {name: version for name, version in image.versions.items() if name in printed}
    others = [
        f"{name} {value} and not {version}"
        for name, version in listed.items()
        for value in sorted(printed[name])
        if not same_version(value, version)
    ]
    unseen = [name for name in image.versions if name not in printed]
    silent = f"; no container printed {', '.join(unseen)}" if unseen else ""
    silent += f"; no version from {some(in_image.silent)}" if in_image.silent else ""
    verdict = Verdict.FAIL if others else Verdict.UNKNOWN if in_image.silent else Verdict.OK
    wanted = ", ".join(f"{name} {version}" for name, version in listed.items())
    actual = ", ".join(f"{name} {' or '.join(sorted(printed[name]))}" for name in listed)
    evidence = f"{in_image.image} has {'; '.join(others)}" if others else f"as the page of {in_image.image} lists"
    evidence, remedy = evidence + silent, advice("image")
    return Outcome(verdict=verdict, wanted=wanted, actual=actual, evidence=evidence, remedy=remedy)


@gate
def recipe(expected: Expected) -> Outcome | None:
    """Log and recipe are of the same job. Without that the recipe's figures cannot be judged, so another job is
    unknown."""
    if not expected.recipe:
        return None
    wanted, evidence = expected.recipe, f"the recipe has {', '.join(expected.differences)}"
    remedy = "judge the log of a run of this recipe, or leave out --recipe and give the bounds with --expect"
    return Outcome(verdict=Verdict.UNKNOWN, wanted=wanted, actual="another job", evidence=evidence, remedy=remedy)
