"""What becomes of one host in a run: one record, written where things happen, and read by all that reports the run."""

from dataclasses import dataclass, field

from shakedown.report.summary import ORDER, HostOutcome, OutcomeKind
from shakedown.state.findings import Verdict

_WORDS: dict[Verdict, OutcomeKind] = {  # of a node's worst verdict, which is never a warning
    Verdict.OK: "ok",
    Verdict.DRIFT: "drift",
    Verdict.UNKNOWN: "unknown",
    Verdict.FAIL: "fail",
}


@dataclass
class HostRun:
    """One host's course through a run."""

    operation: str = ""  # that the host is in
    unfinished: str = ""  # the operation that failed
    examined: bool = False  # a look at the node was tried
    kind: OutcomeKind | None = None  # what became of it; None: nothing but its findings tells
    reason: str = ""  # of the kind
    excluded: str = ""  # why it takes no part in what follows
    verdict: Verdict | None = None  # as what it was excluded, or failed
    message: str = ""  # the last one in red, of pyinfra or of an operation
    changes: list[str] = field(default_factory=list)  # operations that changed something, in order
    declared: list[str] = field(default_factory=list)  # findings for which a deploy declared an operation

    def settle(self, kind: OutcomeKind, reason: str) -> None:
        """Note what became of the host. The graver kind counts, and of one kind the first reason."""
        if self.kind is None or ORDER.index(kind) < ORDER.index(self.kind):
            self.kind, self.reason = kind, reason

    def begin(self, operation: str) -> bool:
        """Note that an operation begins on the host. Return False where the host is in it already."""
        again = self.operation == operation
        self.operation, self.message = operation, ""
        return not again

    def fail(self, operation: str) -> str:
        """Note that an operation failed. Return why, which is the last message in red."""
        why = self.message or "it gave no reason"
        self.unfinished = self.unfinished or operation
        self.settle("failed", f'in "{operation}": {why}')
        return why

    def lose(self, why: str) -> None:
        """Note that the host does not answer, and why: the last reason counts."""
        if self.kind == "unreached":
            self.reason = why
        self.settle("unreached", why)

    def answer(self) -> None:
        """Note that the host answers, though it may not have done so before."""
        if self.kind == "unreached":
            self.kind, self.reason = ("excluded", self.excluded) if self.excluded else (None, "")

    def exclude(self, why: str, verdict: Verdict | None = None) -> None:
        """Note that the host takes no part in what follows; the first reason and the first verdict count."""
        self.excluded = self.excluded or why
        self.verdict = self.verdict or verdict
        self.settle("excluded", self.excluded)

    def changed(self) -> list[str]:
        """Return what was changed, in order: findings by their names, other operations by theirs."""
        return [self.short(operation) for operation in self.changes]

    def short(self, operation: str) -> str:
        """Return the finding that an operation was declared for, or the operation itself."""
        finding = operation.partition(": ")[0]
        return finding if finding in self.declared else operation

    @property
    def fails(self) -> bool:
        """Return whether the run cannot pass with such a host."""
        return self.kind in ("failed", "unreached", "excluded")

    @property
    def lost(self) -> str:
        """Return why the host does not answer; empty: it does, or failed later on."""
        return self.reason if self.kind == "unreached" else ""

    @property
    def failure(self) -> str:
        """Return why the host failed in an operation; empty: it did not."""
        return self.reason if self.unfinished else ""

    def outcome(self, node: str, interrupted: bool, worst: Verdict | None, different: str) -> HostOutcome:
        """Return what became of the host at the end. `worst` is the verdict of its findings, of which some are
        `different`; None: they were not judged."""
        if self.kind not in ("failed", "unreached") and interrupted:
            if self.operation:
                return HostOutcome(node, "interrupted", f'in "{self.operation}"', under_way=True)
            if not self.examined:
                return HostOutcome(node, "interrupted", "before it was examined")
        if self.kind is not None:
            return HostOutcome(node, self.kind, self.reason)
        if worst is None:
            return HostOutcome(node, "unknown", different)
        return HostOutcome(node, _WORDS[worst], different)
