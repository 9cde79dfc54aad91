"""python -m bench.trips [--delays 50 300] [--runs 5]: the round trips that a drift check needs beside a bare connect.

One real sshd, and before it a relay on loopback that holds what is sent for so many milliseconds each way. How much
longer the client keeps its connection than without delay, divided by twice the delay, is the number of round trips that
it waits for: starting Python is not in it. The least of several runs counts: a busy machine only ever adds. TCP's own
handshake ends at the relay and is in none.
"""

from __future__ import annotations

import sys

from bench.cases import DRIFT, FLOOR, cases, prepare
from bench.nodes import BenchError, running
from bench.relay import options, relayed
from bench.settings import of_this_machine

AIM = 3.0  # round trips more than the bare connect


def measured(delays: list[int], runs: int) -> dict[int, dict[str, float]]:
    """Delay each way, ms -> case -> the least time that a connection was held, seconds. Raises BenchError."""
    least: dict[int, dict[str, float]] = {delay: {} for delay in (0, *delays)}
    with running(1) as nodes, relayed(nodes) as (behind, relay):
        settings = of_this_machine()
        prepare(nodes, settings)
        chosen = cases(behind, settings, [FLOOR, DRIFT])
        for turn in range(runs + 1):
            for delay, held in least.items():
                relay.delay_s = delay / 1e3
                for case in chosen:
                    case.cost(behind)
                    if turn:  # the first turn fills caches
                        held[case.name] = min(held.get(case.name, relay.held_s), relay.held_s)
    return least


def table(least: dict[int, dict[str, float]]) -> str:
    """Times down the delays, and the round trips that they show."""
    lines = ["| delay each way, ms | bare connect, s | drift, s | round trips: connect | drift | more | |"]
    lines.append("|---|---|---|---|---|---|---|")
    for delay, held in least.items():
        floor, drift = held[FLOOR], held[DRIFT]
        if delay:
            trips = [(held[name] - least[0][name]) / (2 * delay / 1e3) for name in (FLOOR, DRIFT)]
            more = trips[1] - trips[0]
            shown = f"{trips[0]:.1f} | {trips[1]:.1f} | {more:.1f} | {'met' if more <= AIM else 'missed'}"
        else:
            shown = "| | |"
        lines.append(f"| {delay} | {floor:.2f} | {drift:.2f} | {shown} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table of docs/developers/speed.md."""
    wanted = options(__doc__, [50, 300]).parse_args()
    try:
        print(table(measured(wanted.delays, wanted.runs)))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
