"""How reliable nodes and parts are."""

import time
from datetime import datetime

import click

from shakedown.cli.output import format_of
from shakedown.cli.words import Since, usable
from shakedown.ledger import LedgerError
from shakedown.ledger.reliability import reliability as read_reliability
from shakedown.ledger.store import open_ledger
from shakedown.report.formats import Reliable, write


@click.command()
@click.option("--since", type=Since(), metavar="TIME", help="2026-11-01, 2026-11-01T06:00 (UTC), or 12h, 7d, 4w ago")
@format_of(Reliable)
def reliability(since: datetime | None, form: str) -> None:
    """Show failures per hour under load, repairs, and lemons, from the ledger.

    A failure is an incident that takes a node out of service, such as a failed finding. What is reported until a
    repair, or until the node passes a load, is the same failure. A part has failed where the incident names its slot or
    serial number. An hour under load is one of a run that the node took part in, with the time of setting up.

    Over T hours with k failures the mean time between failures is T/k, and its 95 % interval 2T/chi2(.975, 2k+2) to
    2T/chi2(.025, 2k) (Garwood 1936). Without a failure there is a lower bound alone: 8 nodes for 24 h show 52 h.

    A lemon has more of the failures than its share of the hours explains: a binomial test, of which at most 5 % of
    those named are wrong (Benjamini and Hochberg 1995). Its rate is compared with that of the rest. A repair has held
    where the node passes a load and has no incident for 7 days (interval: Clopper and Pearson 1934).

    \b
    shakedown reliability --since 26w
    shakedown reliability --format json | jq '.units[] | select(.lemon)'
    """
    with usable(LedgerError):
        write(Reliable(read_reliability(open_ledger(), int(time.time()), since)), form)
