"""The `shakedown` command."""

from __future__ import annotations

import click

from shakedown.cli.cvs import import_cvs
from shakedown.cli.logs import judge, parse, report
from shakedown.cli.nodes import drift, plan, run, show
from shakedown.log import configure

EXIT_CODES = """
\b
Exit codes:
  0  every node in its desired state, every gate passed
  1  failed: a node unreachable, a check or a gate failed
  2  usage, or input that cannot be used
  3  drift
  4  unknown: something could not be read
The worst wins: 1, then 4, then 3.
"""


@click.group(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="shakedown")
@click.option("--log-format", type=click.Choice(["console", "json"]), default="console", help="of the tool's own log")
def main(log_format: str) -> None:
    """Bring AMD Instinct GPU nodes into a declared state, prove it, and let them train together.

    \b
    shakedown drift inventories/rack.py        has anything drifted? changes nothing
    shakedown plan inventories/rack.py         the smoke run, node by node, without starting it
    shakedown run inventories/rack.py          bring-up: the same as pyinfra ... deploy/megatron.py -y
    shakedown judge train.log --expect throughput_per_gpu=380
    """
    configure(log_format)


for command in (show, plan, drift, run, parse, judge, report, import_cvs):
    main.add_command(command)
