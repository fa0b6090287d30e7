"""The table of error codes."""

from __future__ import annotations

import pytest

from kraftlab.common.errors import ApiError, ErrorCode, describe
from kraftlab.common.errors import ErrorCode as QuorumErrorCode


@pytest.mark.parametrize("code", QuorumErrorCode)
def test_consensus_uses_the_same_numbers(code: QuorumErrorCode) -> None:
    assert ErrorCode[code.name] == code.value


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_every_error_has_a_text(code: ErrorCode) -> None:
    assert code.message.endswith(".") or code.message.endswith("_ -")


def test_an_error_carries_its_codes_text_unless_it_has_its_own_or_none() -> None:
    assert ApiError(ErrorCode.NOT_CONTROLLER).message == ErrorCode.NOT_CONTROLLER.message
    assert ApiError(ErrorCode.NOT_CONTROLLER, "Ask node 3001.").message == "Ask node 3001."
    assert ApiError(ErrorCode.NOT_CONTROLLER, "").message is None
    assert str(ApiError(ErrorCode.NOT_CONTROLLER, "Ask node 3001.")) == "NOT_CONTROLLER(41): Ask node 3001."


def test_numbers_are_described_also_when_they_are_not_in_the_table() -> None:
    assert (describe(41), describe(-1), describe(31337)) == ("NOT_CONTROLLER(41)", "UNKNOWN_SERVER_ERROR(-1)", "UNKNOWN(31337)")
