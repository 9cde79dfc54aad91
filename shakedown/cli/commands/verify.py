"""The command that verifies a signed run."""

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from shakedown.cli.words import EXIT_CODES, reason, unusable
from shakedown.common.text import counted, printable
from shakedown.runs.signing.envelope import NotSigned, hint, public_key
from shakedown.runs.signing.openssh import KnownHosts
from shakedown.runs.signing.verify import Verified, verified
from shakedown.state.findings import Verdict

_MOST = 20  # lines of one kind


@click.command(epilog=EXIT_CODES)
@click.argument("run")
@click.option(
    "--key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    required=True,
    help="the site's public key in PEM, from the site itself: never one that came with the run",
)
@click.option(
    "--known-hosts",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="as OpenSSH's, with the nodes' names: each reading and log must be signed by its node with such a key",
)
def verify(run: str, key: Path, known_hosts: Path | None) -> None:
    """Verify a signed RUN: signature, files, nodes' own signatures, then the judgement from the evidence.

    RUN is its id, a part that only its id begins with, latest, its directory, or the file that `shakedown bundle --key`
    made of it, with its statement (FILE.sigstore.json) beside it.

    Exits as the verdict says; with 1 where a signature, a file or the verdict does not hold, and with 2 where there is
    no statement or no key. docs/evidence.md has the same by openssl, jq and sha256sum.

    \b
    shakedown verify latest --key site.pub
    shakedown verify 20261122T014456-4dc983.shakedown.tar.gz --key site.pub
    """
    try:
        site = public_key(key)
    except (OSError, ValueError) as error:
        unusable(reason(str(key), error))
    try:
        keys = KnownHosts(known_hosts).problem if known_hosts else None
        with verified(run, site, keys) as found:
            if known_hosts:
                unsigned = {**found.held.unsigned, **found.held.unsigned_logs}
                found.changes.extend(f"{name}: {why}" for name, why in unsigned.items())
            _show(found, hint(site))
    except NotSigned as error:
        click.echo(f"not verified: {printable(str(error), 4000)}")
        sys.exit(Verdict.FAIL.exit_code)
    except (OSError, ValueError) as error:
        unusable(str(error))
    sys.exit(found.verdict.exit_code)


def _show(found: Verified, name: str) -> None:
    predicate, held, record = found.statement.predicate, found.held, found.record
    reasons = "; ".join(f"{node}: {why}" for node, why in [*held.unsigned.items()][:3])
    again = "judged again from the evidence" if found.judged else "by its findings, which are not judged again"
    nodes, logs = counted(len(record.nodes), "node"), counted(held.logs + len(held.unsigned_logs), "log")
    others = {"packed from the signed run": predicate.packed, "the signed run before:": predicate.previous}
    for line in (
        f"signature: holds, key sha256 {name}",
        f"run: {predicate.run_id} over {record.inventory}, begun at {record.started_at}",
        f"files: {counted(len(found.statement.subject), 'file')} as they were signed, at {predicate.signed_at}",
        *(f"{what} {run.run_id}, statement sha256 {run.sha256}" for what, run in others.items() if run),
        f"judged by shakedown {predicate.tool.version}, sources sha256 {predicate.tool.sha256}",
        f"readings: {held.readings} of {nodes} signed by the node itself" + (f" ({reasons})" if reasons else ""),
        f"logs: {held.logs} of {logs} signed by the node itself",
        *_first(f"not signed by its node: {log}: {why}" for log, why in held.unsigned_logs.items()),
        *_first(f"does not hold: {change}" for change in found.changes),
        f"verdict: {predicate.verdict}, {again}: {found.again}; {'does not hold' if found.changes else 'holds'}",
    ):
        click.echo(printable(line, 2000))


def _first(lines: Iterable[str]) -> list[str]:
    """Return the first lines, and how many others there are: a large run has 100,000 logs."""
    listed = list(lines)
    more = len(listed) - _MOST
    return listed if more <= 0 else [*listed[:_MOST], f"and {counted(more, 'other')}"]
