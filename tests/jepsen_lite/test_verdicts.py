"""The verdict of several checkers, and the exit code of the process."""

from __future__ import annotations

import pytest

from jepsen_lite.outcomes import of_broken_call, of_error_code
from jepsen_lite.verdicts import CRASH, HARNESS, LIVENESS, NOT_KNOWN, SAFETY, VALID, Ending, Verdict, combined, ending, worst
from kraftlab.common.errors import ErrorCode
from kraftlab.common.exit_codes import DONE, FAILED, UNFINISHED

GOOD = Verdict(checker="a", valid=True)
BAD = Verdict(checker="b", valid=False)
OPEN = Verdict(checker="c", valid="unknown")
STUCK = Verdict(checker="d", valid=False, kind="liveness")
DEAD = Verdict(checker="e", valid=False, kind="crash")


@pytest.mark.parametrize(
    ("verdicts", "valid", "code"),
    [
        ([], True, VALID),
        ([GOOD], True, VALID),
        ([GOOD, OPEN], "unknown", NOT_KNOWN),
        ([OPEN, STUCK], False, LIVENESS),
        ([STUCK, DEAD], False, CRASH),
        ([GOOD, OPEN, STUCK, DEAD, BAD], False, SAFETY),
        ([Verdict(checker="f", valid="unknown", kind="liveness")], "unknown", NOT_KNOWN),
    ],
)
def test_false_beats_unknown_beats_true(verdicts: list[Verdict], valid: object, code: Ending) -> None:
    assert combined(verdicts) == valid
    assert ending(verdicts) == code


def test_an_ending_has_one_of_three_exit_codes() -> None:
    assert {one.name: one.exit_code for one in Ending} == {
        "SAFETY": FAILED,
        "CRASH": FAILED,
        "LIVENESS": FAILED,
        "HARNESS": FAILED,
        "NOT_KNOWN": UNFINISHED,
        "VALID": DONE,
    }


def test_the_worst_of_many_runs_is_a_violation_then_a_failed_harness_then_unknown() -> None:
    assert worst([NOT_KNOWN, HARNESS, VALID]) == HARNESS
    assert worst([HARNESS, SAFETY, NOT_KNOWN]) == SAFETY


@pytest.mark.parametrize(
    ("code", "is_unknown", "outcome"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, False, "fail"),
        (ErrorCode.NOT_CONTROLLER, False, "fail"),
        (ErrorCode.NOT_CONTROLLER, True, "info"),
        (ErrorCode.REQUEST_TIMED_OUT, False, "fail"),
        (ErrorCode.REQUEST_TIMED_OUT, True, "info"),
        (ErrorCode.NETWORK_EXCEPTION, False, "info"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False, "info"),
        (32_000, False, "info"),
    ],
)
def test_only_what_certainly_did_nothing_has_failed(code: int, is_unknown: bool, outcome: str) -> None:
    assert of_error_code(code, outcome_unknown=is_unknown) == outcome


@pytest.mark.parametrize(
    ("status", "details", "outcome"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses; last error: Connection refused", "fail"),
        ("UNAVAILABLE", "Socket closed", "info"),
        ("UNAVAILABLE", "recvmsg: Connection refused", "info"),
        ("UNAVAILABLE", "the broker passed it on: failed to connect to all addresses", "info"),
        ("DEADLINE_EXCEEDED", "failed to connect", "info"),
        ("CANCELLED", "", "info"),
    ],
)
def test_a_broken_call_has_failed_only_if_no_byte_left(status: str, details: str, outcome: str) -> None:
    assert of_broken_call(status, details) == outcome
