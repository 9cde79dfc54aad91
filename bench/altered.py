"""python -m bench.altered [--altered 10000] [--judged 200] [--seed 1]: signed runs and archives after a change.

Bits, ends, order, added and removed files, files of each other, replaced signatures, old signatures on new files: none
may be accepted. Runs that were left alone are judged again, with the same answer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from shakedown.runs.directory import STATEMENT, RunDirectory
from shakedown.runs.signing import envelope, verify
from shakedown.runs.signing.statement import BESIDE

LOGS = ("rocm.log", "nan_loss.log")


@dataclass
class Result:
    """How many were altered, what of them was accepted; how many were judged again, and how many alike."""

    altered: int = 0
    accepted: list[str] = field(default_factory=list)
    judged: int = 0
    alike: int = 0


def play(altered: int, judged: int, seed: int) -> Result:
    """Alter half of them as directories and half as archives, then judge others again."""
    from tests import signed

    result = Result()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        private, public = signed.keys(folder)
        site = envelope.public_key(public)
        runs = [signed.a_signed_run(folder / f"runs{number}", private) for number in (1, 2)]
        packed = [_packed(run, folder / f"packed{number}", private) for number, run in enumerate(runs)]
        for form, (one, other), last in (
            ("run", [run.path for run in runs], STATEMENT),
            ("archive", packed, f"a.tar.gz{BESIDE}"),
        ):
            whole = signed.files_of(one)
            sources = signed.altered(whole, signed.files_of(other), seed, last)
            if form == "archive":  # a file that comes to lie beside it is none of it
                sources = (files for files in sources if any(files.get(name) != whole[name] for name in whole))
            for number, files in enumerate(islice(sources, altered // 2)):
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    laid = signed.lay(files, Path(place) / one.name)
                    result.altered += 1
                    if _accepted(laid if form == "run" else laid / "a.tar.gz", site):
                        result.accepted.append(f"{form} {number}")
        for number in range(judged):
            run = signed.a_signed_run(folder / f"judged{number}", private, LOGS[number % 2])
            with verify.verified(str(run.path), site) as found:
                result.judged += 1
                result.alike += not found.changes and found.again == found.statement.predicate.verdict
    return result


def _packed(run: RunDirectory, folder: Path, key: Path) -> Path:
    folder.mkdir()
    verify.make_signed(run, folder / "a.tar.gz", False, envelope.private_key(key))
    return folder


def _accepted(path: Path, site: EllipticCurvePublicKey) -> bool:
    try:
        with verify.verified(str(path), site):
            return True
    except (OSError, ValueError):
        return False


def main() -> None:
    """Print the counts, and exit with 1 where one was accepted or judged otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in (("altered", 10_000), ("judged", 200), ("seed", 1)):
        parser.add_argument(f"--{option}", type=int, default=default)
    result = play(**vars(parser.parse_args()))
    print(f"altered: {result.altered}, accepted: {len(result.accepted)} {' '.join(result.accepted[:10])}")
    print(f"judged again: {result.judged}, with the same answer: {result.alike}")
    sys.exit(bool(result.accepted) or result.alike < result.judged)


if __name__ == "__main__":
    main()
