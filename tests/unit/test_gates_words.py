"""What a gate says beside its verdict: the evidence is what an operator acts on, so it must not be the wrong one."""

from __future__ import annotations

from shakedown.findings import Verdict
from shakedown.smoke.gates import Gate, NodeLog, judge_log
from shakedown.smoke.gates.evidence import logs_complete
from shakedown.smoke.gates.model import QUOTED, some
from shakedown.smoke.log import Iteration
from shakedown.smoke.signatures import advice


def lines(count: int, step: int = 1, **fields: object) -> list[Iteration]:
    whole = {"elapsed_ms": 650.0, "skipped_iterations": 0, "nan_iterations": 0, **fields}
    return [
        Iteration.model_validate({"iteration": i, "total_iterations": count, "lm_loss": 12.0 - 0.1 * i, **whole})
        for i in range(step, count + 1, step)
    ]


def gate(name: str, iterations: list[Iteration], incomplete: str | None = None) -> Gate:
    log = NodeLog.model_validate({"lines": 100, "iterations": iterations, "incomplete": incomplete or ""})
    return next(found for found in judge_log(log, {}) if found.name == name)


def test_of_many_the_rest_is_counted() -> None:
    assert some(range(QUOTED)) == ", ".join(map(str, range(QUOTED)))
    assert some(range(QUOTED + 3)).endswith(" and 3 more")


def test_the_log_interval_is_said_where_there_is_one() -> None:
    assert gate("iterations_complete", lines(20)).evidence == "20 lines, 1 to 20 of 20"
    assert gate("iterations_complete", lines(20, 5)).evidence == "4 lines, one for 5 iterations, 5 to 20 of 20"


def test_the_first_line_that_is_missing_is_named_at_the_end_too() -> None:
    assert "1 of 20 lines are missing, the first is 20" in gate("iterations_complete", lines(20)[:-1]).evidence
    assert "1 of 20 lines are missing, the first is 1" in gate("iterations_complete", lines(20)[1:]).evidence


def test_a_line_that_does_not_tell_of_skips_is_named_and_no_other() -> None:
    assert gate("no_skipped_or_nan", lines(20)).evidence == "0 skipped and 0 NaN on 20 lines"
    silent = lines(20)
    silent[6] = silent[6].model_copy(update={"skipped_iterations": None})
    found = gate("no_skipped_or_nan", silent)
    assert found.verdict is Verdict.UNKNOWN and found.evidence.endswith("the line of iteration 7 does not say")


def test_no_logs_are_said_to_be_none_and_whole_ones_to_be_whole() -> None:
    assert logs_complete({}).evidence == "there are no logs"
    assert logs_complete({"node01": NodeLog(lines=7)}).evidence == "7 lines, as long as on the nodes"


def test_a_remedy_fits_what_was_found() -> None:
    whole = lines(20)
    assert gate("no_failure_signature", whole).evidence == "none in 100 lines"
    assert {found.remedy for found in (gate(name, whole) for name in ("loss_finite", "no_skipped_or_nan"))} == {None}
    assert gate("no_failure_signature", whole).remedy is None
    assert gate("no_failure_signature", whole, "node01: 3 of 9 bytes").remedy == advice("unfinished")
    skipped = [*whole[:9], whole[9].model_copy(update={"skipped_iterations": 1, "lm_loss": None}), *whole[10:]]
    assert gate("no_skipped_or_nan", skipped).remedy == advice("loss")
    assert gate("loss_finite", skipped).remedy == advice("loss")
    unknown_form = [line.model_copy(update={"lm_loss": None}) for line in whole]
    assert gate("loss_finite", unknown_form).remedy == advice("log_form")
    infinite = [line.model_copy(update={"lm_loss": float("inf")}) for line in whole]
    assert gate("loss_finite", infinite).remedy == advice("loss")
    searching = lines(4, loss_scale=1.0)
    for number, line in enumerate(searching):
        searching[number] = line.model_copy(
            update={"loss_scale": 2.0 ** (32 - number), "skipped_iterations": 1, "lm_loss": None}
        )
    assert gate("no_skipped_or_nan", searching).remedy == advice("loss_scale")
