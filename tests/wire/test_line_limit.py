from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from kraftlab.wire.line_limit import LineLimit


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
