"""Whether a node needs longer than others for the same work."""

from shakedown.catalogue import advice
from shakedown.common.text import counted
from shakedown.evidence.stragglers.model import Stragglers
from shakedown.evidence.stragglers.words import NOT_SEEN, sentence
from shakedown.gates.model import Outcome, some
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def no_straggler(stragglers: Stragglers) -> Outcome:
    """No node's ranks need longer for the same work than other nodes', by `smoke.straggler_fail` or more, in every
    window. Nodes that scatter too much to name one, and ranks whose work is not known to be equal, are unknown."""
    failed = stragglers.named("fail")
    texts = [some([sentence(straggler) for straggler in failed])] if failed else []
    texts += [f"not known: {stragglers.unknown}"] if stragglers.unknown else []
    verdict = Verdict.FAIL if failed else Verdict.UNKNOWN if texts else Verdict.OK
    if slower := stragglers.named("warn", "notice"):
        texts.append(f"reported: {some([sentence(straggler) for straggler in slower])}")
    texts.append(f"{counted(stragglers.ranks, 'rank')} over {counted(stragglers.windows, 'window')}; {NOT_SEEN}")
    return Outcome(
        verdict=verdict,
        wanted="none",
        actual=", ".join(straggler.node for straggler in failed) or None,
        evidence="; ".join(texts),
        remedy=advice("straggler"),
    )
