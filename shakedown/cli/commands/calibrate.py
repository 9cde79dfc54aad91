"""A baseline of several runs."""

import sys
from pathlib import Path

import click

from shakedown.cli.output import format_and_output, show_document
from shakedown.cli.words import EXIT_CODES, Target, over_inventory
from shakedown.common.text import complaint
from shakedown.ledger.calibration import CalibrationError, baselines_of, in_a_row, usual_seconds
from shakedown.report.formats import Calibrated
from shakedown.state.findings import Verdict

PREPARE = ("gevent",)
SECTION = "Run"


@click.command(epilog=EXIT_CODES)
@over_inventory
@click.option("--runs", type=click.IntRange(min=1, max=1000), default=10, show_default=True, help="one after the other")
@format_and_output(Calibrated)
def calibrate(target: Target, runs: int, form: str, output: Path | None) -> None:
    """Make a baseline of several runs: one after the other, each as `shakedown run` does it, and what they and earlier
    ones of the same job say of each figure.

    It says how long it will take, and ends at the first run that does not pass. Ctrl-C ends the run under way; the
    runs before it are in the ledger and count.

    \b
    shakedown calibrate inventories/rack.py --runs 10
    shakedown calibrate inventories/rack.py --runs 5 --output baseline.json
    """
    from shakedown.cli.nodes import load_state  # pyinfra: see there

    load_state(target, to_train=True, keeps=True)

    beside = Path(sys.executable).with_name("shakedown")  # this command, as it is installed beside the running python
    own = [str(beside)] if beside.exists() else [sys.executable, "-c", "from shakedown.cli import main; main()"]

    def command(file: Path) -> list[str]:
        words = [*own, "run", target.inventory, "-y", "--format", "json", "--output", str(file)]
        words += [*["-v"] * target.verbose, *(["--parallel", str(target.parallel)] if target.parallel else [])]
        words += [word for pattern in target.limit for word in ("--limit", pattern)]
        return words + [word for pair in target.data for word in ("--data", pair)]

    try:
        done = in_a_row(command, runs, usual_seconds(target.inventory), lambda line: click.echo(line, err=True))
        rows = baselines_of(done[-1])
    except CalibrationError as error:
        click.echo(complaint(error), err=True)
        sys.exit(error.code)
    document = Calibrated([record.run_id for record in done], rows)
    sys.exit(show_document(document, form, output, Verdict.OK))
