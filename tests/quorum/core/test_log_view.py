"""The log view against a twin that is a plain list of batches."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftlab.common.errors import InvariantViolation
from kraftlab.quorum.core import LogView, OffsetAndEpoch
from kraftlab.quorum.core.batch import BatchHeader, read_header

Batches = Callable[..., list[bytes]]
START = OffsetAndEpoch(0, 0)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("truncate"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("clean"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("reset"), st.integers(0, 2), st.integers(1, 9)),
    ),
    max_size=40,
)


class Twin:
    """A log as a list of headers after a start."""

    def __init__(self) -> None:
        self.start, self.start_crc = START, 0
        self.headers: list[BatchHeader] = []

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.headers[-1].end_offset, self.headers[-1].epoch) if self.headers else self.start

    @property
    def last_crc(self) -> int:
        return self.headers[-1].crc if self.headers else self.start_crc

    def crcs(self) -> dict[OffsetAndEpoch, int]:
        """Return every position of the log, with the crc there."""
        positions = {OffsetAndEpoch(header.end_offset, header.epoch): header.crc for header in self.headers}
        return {self.start: self.start_crc, **positions}

    def end_offset_for_epoch(self, asked: int) -> OffsetAndEpoch:
        return max((position for position in self.crcs() if position.epoch <= asked), default=self.start)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations)
def test_appends_truncations_cleanings_and_resets_agree_with_a_list(
    batches_of: Batches, steps: list[tuple[str, int, int]]
) -> None:
    view, twin = LogView(), Twin()
    for kind, number, count in steps:
        position = sorted(twin.crcs())[number % len(twin.crcs())]
        if kind == "append":
            header = read_header(batches_of(((max(1, twin.end.epoch) + number, count),), twin.end.offset, twin.last_crc)[0])
            twin.headers.append(header)
            view.append(header)
        elif kind == "truncate":
            twin.headers = [header for header in twin.headers if header.end_offset <= position.offset]
            view.truncate(position.offset)
        elif kind == "clean":
            twin.start, twin.start_crc = position, twin.crcs()[position]
            twin.headers = [header for header in twin.headers if header.end_offset > position.offset]
            view.clean(position)
        else:
            twin.start = OffsetAndEpoch(twin.end.offset + count, max(1, twin.end.epoch) + number)
            twin.start_crc, twin.headers = 1000 + count, []
            view.reset(twin.start, twin.start_crc)
        assert len(view) == len(twin.headers)
        assert (view.start, view.end, view.last_crc) == (twin.start, twin.end, twin.last_crc)
    for header in twin.headers:
        assert view.epoch_at(header.base_offset) == header.epoch
    for position, crc in twin.crcs().items():
        assert view.holds(position)
        assert not view.holds(OffsetAndEpoch(position.offset, position.epoch + 1))
        assert view.crc_at(position.offset) == crc
    offsets = {position.offset for position in twin.crcs()}
    for offset in range(view.end_offset + 3):
        assert view.is_boundary(offset) == (view.position_at(offset) is not None) == (offset in offsets)
    for asked in range(view.last_epoch + 2):
        assert view.end_offset_for_epoch(asked) == twin.end_offset_for_epoch(asked)


def test_a_batch_that_does_not_continue_the_log_is_refused(batches_of: Batches) -> None:
    first, second = (read_header(data) for data in batches_of(((1, 2), (1, 1))))
    view = LogView.from_headers([first])
    with pytest.raises(InvariantViolation, match="does not continue"):
        view.append(first)
    with pytest.raises(InvariantViolation, match="does not continue"):
        view.append(msgspec.structs.replace(second, previous_crc=7))


def test_truncation_into_a_batch_is_refused(batches_of: Batches) -> None:
    view = LogView.from_headers(read_header(data) for data in batches_of(((1, 4),)))
    with pytest.raises(InvariantViolation, match="3 is not a batch boundary"):
        view.truncate(3)


def test_cleaning_into_a_batch_or_up_to_another_epoch_is_refused(batches_of: Batches) -> None:
    view = LogView.from_headers(read_header(data) for data in batches_of(((1, 4), (2, 4))))
    for position in (OffsetAndEpoch(3, 1), OffsetAndEpoch(4, 2), OffsetAndEpoch(9, 2)):
        with pytest.raises(InvariantViolation, match="is not a position of it"):
            view.clean(position)


def test_a_log_that_starts_after_a_snapshot_knows_its_epoch_and_crc(batches_of: Batches) -> None:
    data = batches_of(((4, 2),), 100, 77)
    view = LogView.from_headers([read_header(data[0])], OffsetAndEpoch(100, 3), 77)
    assert view.end_offset_for_epoch(3) == OffsetAndEpoch(100, 3)
    assert view.crc_at(100) == 77
    view.truncate(100)
    assert view.end == OffsetAndEpoch(100, 3)
