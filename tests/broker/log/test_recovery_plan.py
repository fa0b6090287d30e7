"""Verdicts on segments at a start: the table is total, and agrees with a list of offsets."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kraftlab.broker.log.recovery_plan import HOLE_MAX_OFFSETS, VERDICTS, Place, RecoveryFacts, Verdict, judge, reason_to_end

offsets = st.one_of(st.integers(0, 12), st.sampled_from([HOLE_MAX_OFFSETS + step for step in range(-1, 14)]), st.just(2**63 - 1))


def test_the_table_has_a_verdict_for_each_case() -> None:
    assert set(VERDICTS) == set(product((True, False), Place))


@given(base=offsets, end_before=offsets, trusted=st.booleans(), reaches_above=st.booleans(), recovery_point=offsets)
def test_a_segment_is_judged_as_its_offsets_say(
    base: int, end_before: int, trusted: bool, reaches_above: bool, recovery_point: int
) -> None:
    found = RecoveryFacts(base, end_before, trusted, reaches_above, recovery_point)
    if trusted:
        expected = Verdict.KEEP
    elif base < end_before:
        expected = Verdict.END if reaches_above else Verdict.PASS_OVER
    else:
        could_be_lost = base - end_before in range(1, 2**31 + 1) and base > recovery_point
        expected = Verdict.END if could_be_lost else Verdict.SCAN
    assert judge(found) is expected


def test_the_reason_names_the_offsets() -> None:
    assert reason_to_end(RecoveryFacts(7, 5, False, True, 0)) == (
        "the records from offset 5 to 7, where the next segment begins, are missing"
    )
    assert reason_to_end(RecoveryFacts(5, 7, False, True, 0)) == "segment 5 begins below offset 7 where the one before ends"
