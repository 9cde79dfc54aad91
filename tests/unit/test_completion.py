"""What a shell completes, as click asks for it."""

import json
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
        ("ticket --node n", ["plain,n1", "plain,n2"]),
        ("history --node n2", ["plain,n2"]),
        ("ledger stale n", ["plain,n1", "plain,n2"]),
        ("drift changes.py --limit n", ["plain,n1", "plain,n2"]),
        ("drift n[1-2],m --limit m", ["plain,m"]),
        ("soak rack.py --only me", ["plain,memory"]),
        ("judge log --expect th", ["plain,throughput_per_gpu="]),
        ("isolate lat", ["file,lat", "plain,latest"]),
    ],
)
def test_a_shell_completes(tmp_path: Path, words: str, values: list[str]) -> None:
    (tmp_path / "rack.py").write_text('rack7 = (["n1", "n2"], {"gpu": "mi30"})\n')
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "changes.py").write_text("open('made', 'w')\nrack = [f'n{number}' for number in (1, 2)]\n")
    (tmp_path / "runs" / RUN / "states").mkdir(parents=True)
    head = {"run_id": RUN, "inventory": "changes.py", "inventory_path": str(tmp_path / "changes.py"), "nodes": []}
    (tmp_path / "runs" / RUN / "run.json").write_text(json.dumps(head, indent=1))
    for node in ("n1", "n2", "n3$(touch x)", "n4;x", "n5\nplain,n6", "n7`x`", "n8\x1b[2J"):  # whoever wrote the run
        (tmp_path / "runs" / RUN / "states" / f"{node}.json").touch()
    assert completed(tmp_path, "shakedown", *words.split()) == values
    assert not (tmp_path / "made").exists(), "the inventory ran"
