"""python -m bench.link [--hosts 20 100] [--delays 0 50 200] [--runs 5]: how long a drift check takes where the nodes'
CPU is out of it, beside pyinfra's bare connect.

The nodes of the other measurements share this machine's cores with the controller, and what they use is not there for
it; a rack's cores are its own. Here each node has a real sshd, and says to every command what the probe has said
before, from a file. A relay before each of them holds what is sent for so many milliseconds each way. What is left is
the controller's CPU, sshd's sessions, and the round trips that are waited for. The two take turns; the least of several
runs counts, for a busy machine only ever adds, to the longer one more.
"""

from __future__ import annotations

import sys

from bench.cases import DRIFT, FLOOR, PROBE, cases, prepare
from bench.measure import Cost, run
from bench.nodes import BenchError, running
from bench.relay import options, relayed
from bench.settings import Settings, of_this_machine

AIM = 1.3  # times the bare connect's wall time


def answer(settings: Settings) -> str:
    """What the probe says of a node that is as it should be."""
    with running(1) as nodes:
        prepare(nodes, settings)
        (probe,) = cases(nodes, settings, [PROBE])
        outcome = run(["env", *(f"{key}={value}" for key, value in probe.env.items()), *probe.argv], nodes.scratch)
        if why := probe.wrong(outcome):
            raise BenchError(f"the probe: {why}")
        return outcome.output


def measured(hosts: int, delays: list[int], runs: int, settings: Settings) -> dict[int, dict[str, list[Cost]]]:
    """Delay each way, ms -> case -> what each turn took. Raises BenchError."""
    costs: dict[int, dict[str, list[Cost]]] = {delay: {FLOOR: [], DRIFT: []} for delay in delays}
    text = answer(settings)
    with running(hosts, text) as nodes, relayed(nodes) as (behind, relay):
        chosen = cases(behind, settings, [FLOOR, DRIFT])
        for turn in range(runs + 1):
            for delay, of_delay in costs.items():
                relay.delay_s = delay / 1e3
                for case in chosen:
                    cost = case.cost(behind)
                    if turn:  # the first turn fills caches
                        of_delay[case.name].append(cost)
    return costs


def row(hosts: int, delay: int, costs: dict[str, list[Cost]]) -> str:
    """One line of the table."""
    floor, drift = (min(cost.wall_s for cost in costs[name]) for name in (FLOOR, DRIFT))
    met = "met" if drift / floor <= AIM else "missed"
    return f"| {hosts} | {delay} | {floor:.2f} | {drift:.2f} | {drift / floor:.2f} | {met} |"


def main() -> int:
    """Print the table of docs/developers/speed.md."""
    parser = options(__doc__, [0, 50, 200])
    parser.add_argument("--hosts", type=int, nargs="+", default=[20, 100], choices=range(1, 255), metavar="N")
    wanted = parser.parse_args()
    print("| hosts | delay each way, ms | bare connect, s | drift, s | drift beside it | |\n|---|---|---|---|---|---|")
    settings = of_this_machine()
    try:
        for hosts in wanted.hosts:
            for delay, costs in measured(hosts, wanted.delays, wanted.runs, settings).items():
                print(row(hosts, delay, costs), flush=True)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
