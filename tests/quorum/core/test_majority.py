"""The high watermark against its definition: the largest offset that more than half of the voters have reached."""

from hypothesis import given
from hypothesis import strategies as st

from kraftlab.quorum.core.leader import majority_offset, next_high_watermark

ends = st.lists(st.integers(-1, 20), min_size=1, max_size=7)


@given(ends)
def test_is_the_largest_offset_that_a_majority_has_reached(end_offsets: list[int]) -> None:
    reached = [o for o in range(-1, 21) if 2 * sum(end >= o for end in end_offsets) > len(end_offsets)]
    assert majority_offset(end_offsets) == max(reached)


@given(st.integers(-1, 20), st.integers(0, 20), ends)
def test_never_falls_and_never_stops_at_or_below_the_epoch_start(current: int, start: int, end_offsets: list[int]) -> None:
    result = next_high_watermark(current, start, end_offsets)
    assert result >= current
    assert result == current or result > start


def test_an_offset_equal_to_the_epoch_start_is_not_enough() -> None:
    assert next_high_watermark(-1, 10, [11, 10, 10]) == -1
    assert next_high_watermark(-1, 10, [11, 11, 10]) == 11
