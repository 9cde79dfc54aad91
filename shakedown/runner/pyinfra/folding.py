"""pyinfra's own lines, folded: counts for each operation, and what went wrong with the names of the hosts.

pyinfra writes a line for each connection and each operation of each host. Over 64 nodes these hide the node that
failed, and they say "Success" of a job that is judged later. A filter of pyinfra's logger holds the lines of hosts
back. What is no routine is shown once for all hosts that have it in common, when the operation is over.
"""

import logging
import re
from textwrap import wrap

from pyinfra import logger
from pyinfra.api import State

from shakedown.common.text import printable, strip_escapes
from shakedown.hosts import few
from shakedown.report.causes import without_name
from shakedown.runner.inventory import hosts_in_limit
from shakedown.runner.progress import progress
from shakedown.runner.pyinfra.invocation import invocation

_OF_HOST = re.compile(r"\[(.{1,253}?)\]\s+(?:nested\s+)?(.*)", re.DOTALL)
_ROUTINE = ("Connected", "Success", "No changes", "Skipped", "Ready:", "Error: executed", "Error (ignored): executed")
_CUT = re.compile(r"(, |\()[^,()]*\.\.\.\)")  # of pyinfra's table of changes: the name that it cuts off
_LAST = 3  # lines of a host
_GROUPS = 8  # of hosts with lines of their own
_LENGTH = 400  # characters of a line
_WIDTH = 96  # columns; pyinfra indents its lines by 4


def fold_lines(state: State) -> "Folding | None":
    """Fold pyinfra's lines from here on; None where each line was asked for."""
    if invocation.verbose or state.config.DIFF:
        return None
    for filter_ in [filter_ for filter_ in logger.filters if isinstance(filter_, Folding)]:
        logger.removeFilter(filter_)  # of a state before
    folding = Folding(state)
    logger.addFilter(folding)
    return folding


class Folding(logging.Filter):
    """Holds the lines of hosts back, and shows what several hosts have in common."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._held: dict[str, list[tuple[int, str]]] = {}
        self._connecting: set[str] | None = {host.name for host in hosts_in_limit(state)}
        self._unreached: list[str] = []
        self._saying = False  # a line of its own
        self._hides = False  # pyinfra's table of results

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is shown as it comes."""
        if self._saying:
            return True
        text = strip_escapes(str(record.getMessage())).strip()
        if text.startswith("Failed to load host keys") and "[Errno 2]" in text:  # no host is known yet
            return False
        if text.startswith("-->"):
            self.show()
            self._hides = text.startswith("--> Results")  # the closing lines say it
            return not (self._hides or "operation:" in text)
        if self._hides:
            return False
        found = _OF_HOST.fullmatch(text)
        if found is None or found[1] not in self._state.inventory.hosts:
            if "..." in text and isinstance(record.msg, str):
                record.msg, record.args = _CUT.sub(r"\1...)", record.getMessage()), None
            return True
        if not found[2].startswith(_ROUTINE):
            self._held.setdefault(found[1], []).append((record.levelno, found[2]))
        return False

    def connected(self, host: str, reached: bool) -> None:
        """Note that the first connection to a host was made, or failed; count them after the last."""
        if self._connecting is None or host not in self._connecting:
            return
        self._connecting.discard(host)
        self._unreached += [] if reached else [host]
        if not self._connecting:
            self._connecting = None
            lost = f", {len(self._unreached)} not reached: {few(self._unreached)}" if self._unreached else ""
            self._say(logging.INFO, f"{len(hosts_in_limit(self._state)) - len(self._unreached)} connected{lost}")
            self.show()

    def end_of(self, op_hash: str, name: str) -> None:
        """Show what an operation came to on its hosts, and what hosts said of it that is no routine."""
        runs = progress(self._state).hosts
        ops = {host.name: self._state.ops[host].get(op_hash) for host in hosts_in_limit(self._state)}
        metas = {host: op.operation_meta for host, op in ops.items() if op and op.operation_meta.is_complete()}
        failed = [host for host, meta in metas.items() if not meta.did_succeed()]
        changed = [host for host in metas if name in runs[host].changes and host not in failed]
        changes = any(name in run.changes for run in runs.values())
        rest = len(metas) - len(failed) - len(changed)
        counts = [f"{len(changed)} changed"] if changed else []
        counts += [f"{rest} unchanged" if changes else f"ended on {rest}"] if rest else []
        counts += [f"{len(failed)} failed: {few(failed)}"] if failed else []
        if counts:
            short = next((runs[host].short(name) for host in metas), name)
            self._say(logging.ERROR if failed else logging.INFO, f"{short}: {', '.join(counts)}")
        self.show()

    def show(self) -> None:
        """Show the lines that were held back: of the hosts that have the same ones, once."""
        alike: dict[tuple[str, ...], list[str]] = {}
        for host in filter(self._held.__contains__, self._state.inventory.hosts):
            lines = self._held[host]
            alike.setdefault(tuple(without_name(text, host) for _, text in lines[-_LAST:]), []).append(host)
        held, self._held = self._held, {}
        for number, (texts, hosts) in enumerate(alike.items()):
            if number == _GROUPS:
                rest = [host for others in list(alike.values())[_GROUPS:] for host in others]
                self._say(logging.WARNING, f"{few(rest)}: lines of their own, which -v shows")
                break
            for (level, text), common in zip(held[hosts[0]][-_LAST:], texts, strict=True):
                self._say(level, f"{few(hosts)}: {text if len(hosts) == 1 else common}")

    def _say(self, level: int, text: str) -> None:
        self._saying = True
        try:
            for line in wrap(printable(text, _LENGTH), _WIDTH, subsequent_indent="    ", break_long_words=False):
                logger.log(level, "%s", line)
        finally:
            self._saying = False
