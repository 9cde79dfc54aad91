"""What a shell completes, as click asks for it: in processes of their own, since an inventory is loaded."""

import os
import sys
from pathlib import Path

import pytest

from tests import forks

RUN = "20261122T014456-4dc983"


def completed(folder: Path, *words: str) -> list[str]:
    """Return what bash is given for the last word: "type,value"."""
    asks = {"_SHAKEDOWN_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    environment = {**os.environ, **asks, "SHAKEDOWN_RUNS": str(folder / "runs")}
    code, out, err = forks.run([str(Path(sys.executable).with_name("shakedown"))], folder, environment)
    assert (code, err) == (0, ""), err
    return out.split()


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("dr", ["plain,drift"]),
        ("report 2026", ["file,2026", f"plain,{RUN}"]),
        ("ledger add 2026", ["file,2026", f"plain,{RUN}"]),
        ("run rack.py --resume lat", ["file,lat", "plain,latest"]),
        ("drift ra", ["file,ra"]),
        ("drift rack.py --limit n", ["plain,n1", "plain,n2"]),
        ("drift rack.py -v --limit rac", ["plain,rack7", "plain,rack"]),
        ("drift rack.py --limit rack7,!n", ["plain,rack7,!n1", "plain,rack7,!n2"]),
        ("show rack.py n2", ["plain,n2"]),
        ("drift broken.py --limit n", []),
        ("judge --recipe gpt-small-tp", ["plain,gpt-small-tp2"]),
        ("demo --fault gpu_ecc", ["plain,gpu_ecc", "plain,gpu_ecc_corrected"]),
        ("judge --gpu mi32", ["plain,mi325x"]),
        ("trials rack.py --only gemm,mem", ["plain,gemm,memory"]),
        ("drift rack.py --format ju", ["plain,junit"]),
        ("history --limit 1", []),
    ],
)
def test_a_shell_completes(tmp_path: Path, words: str, values: list[str]) -> None:
    (tmp_path / "rack.py").write_text('rack7 = (["n1", "n2"], {"gpu": "mi30"})\n')
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "runs" / RUN).mkdir(parents=True)
    (tmp_path / "runs" / RUN / "run.json").write_text("{}")
    assert completed(tmp_path, "shakedown", *words.split()) == values
