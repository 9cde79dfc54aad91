"""The command over configuration files of ROCm/cvs: import-cvs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from shakedown.cli.output import format_of
from shakedown.cli.words import unusable
from shakedown.desired.cvs.document import PLACEHOLDER, CvsError, Imported
from shakedown.desired.cvs.importing import import_file
from shakedown.desired.cvs.job import Choice
from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.problems import DesiredStateError, Problem
from shakedown.report.formats import SiteLayer, write
from shakedown.runner.features import resolve

SECTION = "Prepare"


@click.command("import-cvs")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--model", help="which model of the file, where it has several")
@click.option("--gpu", help="which GPU of the file, where it has several: mi300x, mi325, ...")
@click.option("--run", help="which run of the file's sweep, where it has several, or the cell smoke")
@click.option("--thresholds", help="the threshold file, where several stand beside FILE and it names none")
@format_of(SiteLayer)
def import_cvs(
    file: Path, model: str | None, gpu: str | None, run: str | None, thresholds: str | None, form: str
) -> None:
    """Turn one job of a CVS configuration FILE into a site's layer, on standard output.

    What the nodes answer, what is not taken over and what may not hold is listed, each with the reason. A value that is
    left open (<changeme>) stays so in the layer: all of them are listed, and the exit code is 2.
    The same file can be named by an inventory: "cvs": {"file": FILE, "model": MODEL, "gpu": GPU}.

    \b
    shakedown import-cvs mi3xx_megatron_llama_single.json \\
      --model llama3_1_8b --gpu mi300x
    shakedown import-cvs mi3xx_megatron_llama-3.1-8b_single.json \\
      --run MBS=4,GBS=128,PRECISION=FP8 --gpu mi300x \\
      --thresholds mi300x_megatron_llama-3.1-8b_single_threshold.json
    """
    try:
        imported = import_file(file, Choice(model=model, gpu=gpu, run=run, thresholds=thresholds))
        if problems := list(_untrained(imported)):
            raise CvsError(problems, imported.remarks)
    except CvsError as error:
        for remark in error.remarks:
            click.echo(str(remark), err=True)
        unusable(error)
    write(SiteLayer(imported), form)
    for remark in imported.remarks:
        click.echo(str(remark), err=True)
    for problem in imported.open:
        click.echo(f"open: {str(problem).removeprefix(f'{imported.name}: ')}", err=True)
    sys.exit(2 if imported.open else 0)


def _untrained(imported: Imported) -> Iterator[Problem]:
    """Yield why no recipe trains the model, and figures that no run can have. The rest a site's own layer may give."""
    try:
        resolve([HostLayers("host", [Layer(imported.name, imported.values)])])
    except DesiredStateError as error:
        for problem in error.problems:
            if problem.path.startswith(("smoke.recipe", "smoke.expect")) and PLACEHOLDER not in problem.value:
                yield problem
