"""The last reports of the agents, as findings of a drift check: by the desired state of now, and recent enough."""

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from shakedown.agent.compile import digest
from shakedown.common.frozen import Frozen
from shakedown.common.text import load_sound, printable
from shakedown.desired.models import Agent, DesiredState
from shakedown.state.findings import Finding, Remedy, Verdict, worst
from shakedown.state.node import Account

LIMIT = 8 << 20  # characters
CLOCK_S = 60  # a node's clock may be this far from the controller's, and a verdict this much younger than now
SYNCHRONISE = Remedy(text="synchronise the node's clock (chronyc tracking, timedatectl); ages of verdicts depend on it")
AGAIN = Remedy(text="run deploy/agent.py: it compiles the desired state of now for the node")
LOOK = Remedy(text="see `systemctl status shakedown-agent.timer` and `journalctl -u shakedown-agent` on the node")

Short = Annotated[str, Field(max_length=4096)]


class _Part(Frozen):
    model_config = ConfigDict(allow_inf_nan=False)


class Remedied(_Part):
    """What the agent did about a finding, or why it left it."""

    finding: Short
    did: str
    left: str


class Report(_Part):
    """`verdict.json` of a node; docs/agent.md. Times are of the node's clock, seconds since 1970 UTC."""

    schema_version: int
    node: Short
    inventory: Short = ""
    at: float
    verdict: Verdict
    why: str
    desired: Short
    program: Short
    home: Short | None
    user: Short
    stale_after_s: float
    counts: dict[Short, int]
    findings: Annotated[list[Finding], Field(max_length=10_000)]
    remedied: Annotated[list[Remedied], Field(max_length=10_000)]
    not_told: list[str]
    wall_s: float
    cpu_s: float

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        found = "unknown" if self.why else worst([finding.verdict for finding in self.findings])
        if not (self.why or self.findings):
            raise ValueError("it has no finding, and does not say why")
        if self.verdict != found:
            raise ValueError(f"its verdict is {self.verdict}, and that of its {len(self.findings)} findings is {found}")
        return self


def findings(node: str, desired: DesiredState, answer: Any, program: str, clock: float) -> list[Finding]:
    """Return the findings of a node by its agent's last verdict; the first, `agent`, says whether it counts.

    One that is too old, of another desired state or of another program is unknown, whatever it says. `answer`: what
    `shakedown/node/records.py` said there. `program`: the digest of the program that would be installed now. `clock`:
    the controller's time when the answer came, seconds since 1970 UTC, by which ages are reckoned: a node whose clock
    was set back would look as if it had just been checked.
    """
    try:
        now, problem = float(answer["now"]), str(answer["problem"])
        if problem:
            return [_unknown(node, "there is none", problem, AGAIN)]
        report = Report.model_validate(load_sound(answer["verdict"], LIMIT))
    except (ValueError, KeyError, TypeError) as error:
        return [_unknown(node, "it makes no sense", _first(error), AGAIN)]
    if abs(now - clock) > CLOCK_S:
        return [_unknown(node, f"the node's clock is {now - clock:+.0f} s off", "", SYNCHRONISE)]
    age = clock - report.at
    if not -CLOCK_S <= age <= (desired.agent or Agent()).stale_s:
        evidence = (
            f"it was {report.verdict}; {printable(report.why, 200)}" if report.why else f"it was {report.verdict}"
        )
        return [_unknown(node, f"stale: {_ago(age)}", evidence, LOOK)]
    if report.why:
        return [_unknown(node, "it could not check", printable(report.why, 500), LOOK)]
    found = [
        finding.model_copy(update={"node": node, "name": printable(finding.name, 200)}) for finding in report.findings
    ]
    return [_counts(node, desired, report, age, program), *found]


def _counts(node: str, desired: DesiredState, report: Report, age: float, program: str) -> Finding:
    """Judge whether the report compared with the desired state of now, by the checks of now."""
    try:
        now = digest(node, desired, Account(user=report.user, home=report.home, groups=[], at_login=[], members={}))
    except ValidationError as error:
        return _unknown(node, f"its user's home is {report.home}", _first(error), AGAIN)
    if report.node != node:
        return _unknown(node, f"it was compiled for {report.node}", "", AGAIN)
    if report.desired != now:
        compared = f"compared with another desired state ({report.desired[:12]})"
        return _unknown(node, compared, f"that of now is {now[:12]}", AGAIN)
    if report.program != program:
        compared = f"compared by another version of shakedown ({report.program[:12]})"
        return _unknown(node, compared, f"this one is {program[:12]}", AGAIN)
    did = [f"{remedy.finding}: {remedy.did}" for remedy in report.remedied if remedy.did]
    evidence = printable("; ".join([*(f"put back {text}" for text in did), *report.not_told]), 2000)
    return Finding(name="agent", node=node, verdict=Verdict.OK, wanted=_WANTED, actual=_ago(age), evidence=evidence)


_WANTED = "a verdict of now's desired state, not too old"


def _unknown(node: str, actual: str, evidence: str, remedy: Remedy) -> Finding:
    return Finding(
        name="agent",
        node=node,
        verdict=Verdict.UNKNOWN,
        wanted=_WANTED,
        actual=printable(actual, 300),
        evidence=printable(evidence, 1000),
        remedy=remedy,
    )


def _ago(age: float) -> str:
    return f"{age:.0f} s old" if age >= 0 else f"from the future, {-age:.0f} s"


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{type(error).__name__}: {error}"
