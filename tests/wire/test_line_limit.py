from __future__ import annotations

import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.audit import FOLD_S, FOLDED_MAX, AuditLog
from kraftlab.common.line_limit import LINE_INTERVAL_S, LINES_AT_ONCE, LimitedLog, LineLimit


def test_a_burst_is_written_and_then_one_line_per_interval() -> None:
    limit = LineLimit(3, 10.0)
    assert [limit.admit(0.0) for _ in range(5)] == [0, 0, 0, None, None]
    assert limit.summary_due_at == 10.0
    assert [limit.admit(10.0), limit.admit(10.0)] == [2, None]
    assert limit.admit(1000.0) == 1
    assert limit.summary_due_at == math.inf


def test_after_a_quiet_time_there_is_room_for_another_burst() -> None:
    limit = LineLimit(3, 10.0)
    assert [limit.admit(now) for now in (0.0, 0.0, 0.0, 100.0, 100.0, 100.0, 100.0)] == [0, 0, 0, 0, 0, 0, None]


@given(st.lists(st.integers(0, 30)), st.integers(1, 5), st.integers(1, 20))
def test_it_is_a_bucket_of_tokens(pauses: list[int], burst: int, interval_s: int) -> None:
    limit = LineLimit(burst, interval_s)
    now, tokens, suppressed = 0, float(burst), 0
    for pause in pauses:
        now += pause
        tokens = min(float(burst), tokens + pause / interval_s)
        written = limit.admit(now)
        if tokens > 1 - 1e-9:
            assert written == suppressed
            tokens, suppressed = tokens - 1, 0
        else:
            assert written is None
            suppressed += 1
        assert (limit.summary_due_at < math.inf) == (suppressed > 0)


def test_each_level_has_a_limit_and_the_next_line_counts_those_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    lines = LimitedLog(logging.getLogger("limited"), lambda: now)
    for _ in range(LINES_AT_ONCE + 5):
        lines.warning("odd bytes of %s", "a")
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        lines.exception("a call failed")
    now = LINE_INTERVAL_S
    lines.warning("odd bytes of %s", "b")
    assert len(caplog.records) == LINES_AT_ONCE + 2
    assert "ZeroDivisionError" in caplog.text
    assert caplog.messages[-1] == "odd bytes of b; 5 such lines before this one were left out"


def told_by(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return lines


def test_equal_failures_of_an_address_become_one_line_and_a_number(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    audit = AuditLog(lambda: now[0])
    for _ in range(1000):
        audit.login_failed("KAFKA", "10.0.0.7", "it does not speak TLS")
    audit.login_failed("KAFKA", "10.0.0.8", "it does not speak TLS")
    audit.login_failed("KAFKA", "10.0.0.7", "wrong password")
    assert told_by(caplog) == [
        "login failed: listener KAFKA, 10.0.0.7: it does not speak TLS",
        "login failed: listener KAFKA, 10.0.0.8: it does not speak TLS",
        "login failed: listener KAFKA, 10.0.0.7: wrong password",
    ]
    now[0] += FOLD_S
    audit.login_failed("KAFKA", "10.0.0.9", "wrong password")
    assert told_by(caplog) == [
        "login failed: listener KAFKA, 10.0.0.7: it does not speak TLS; 999 more of these",
        "login failed: listener KAFKA, 10.0.0.9: wrong password",
    ]


def test_failures_of_very_many_addresses_are_not_all_remembered(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(lambda: 0.0)
    for number in range(3 * FOLDED_MAX):
        audit.login_failed("KAFKA", f"address {number}", "wrong password")
    assert len(audit) == FOLDED_MAX
    assert len(told_by(caplog)) == LINES_AT_ONCE
