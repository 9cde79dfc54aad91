"""Stragglers in words: the same in gates, in the closing words, in reports and in hints."""

from collections.abc import Iterator

from shakedown.common.text import counted
from shakedown.evidence.stragglers.model import Slow, Stragglers

NOT_SEEN = "not seen: waiting inside fused kernels, pipeline bubbles, a slow network"


def sentence(slow: Slow) -> str:
    """Describe one slow node: how much slower than which peers, and when."""
    role = f" ({slow.role})" if slow.role else ""
    why = f", {slow.why}" if slow.why else ""
    return (
        f"{slow.node}{role} needs {slow.slower:.0%} longer than the median of {counted(slow.peers, 'peer')}"
        f" for the same work (windows {slow.windows}{why or ', in every one'})"
    )


def lines(found: Stragglers) -> Iterator[str]:
    """Yield the lines for the user; none where no node is slow."""
    for slow in found.slow:
        yield f"straggler ({slow.level}): {sentence(slow)}"
    if found.slow and not found.unknown:
        yield f"stragglers: {counted(found.ranks, 'rank')} over {counted(found.windows, 'window')}; {NOT_SEEN}"
    if found.unknown:
        yield f"stragglers: not known: {found.unknown}"
