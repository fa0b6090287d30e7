"""The log view against a twin that is a plain list of batches."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftlab.quorum.core import InvariantViolation, LogView, OffsetAndEpoch
from kraftlab.quorum.core.batch import BatchHeader, read_header

Batches = Callable[..., list[bytes]]
operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("truncate"), st.integers(0, 100), st.just(0)),
    ),
    max_size=40,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations)
def test_appends_and_truncations_agree_with_a_list(batches_of: Batches, steps: list[tuple[str, int, int]]) -> None:
    view, twin = LogView(), list[BatchHeader]()
    for kind, number, count in steps:
        end = twin[-1].end_offset if twin else 0
        if kind == "append":
            epoch = (twin[-1].epoch if twin else 1) + number
            twin.append(read_header(batches_of(((epoch, count),), end, twin[-1].crc if twin else 0)[0]))
            view.append(twin[-1])
        else:
            twin = twin[: number % (len(twin) + 1)]
            view.truncate(twin[-1].end_offset if twin else 0)
        assert len(view) == len(twin)
        assert view.end == (OffsetAndEpoch(twin[-1].end_offset, twin[-1].epoch) if twin else OffsetAndEpoch(0, 0))
        assert view.last_crc == (twin[-1].crc if twin else 0)
    for header in twin:
        assert view.crc_at(header.end_offset) == header.crc
        assert view.epoch_at(header.base_offset) == header.epoch
    boundaries = {0, *(header.end_offset for header in twin)}
    assert all(view.is_boundary(offset) == (offset in boundaries) for offset in range(view.end_offset + 3))
    for asked in range(12):
        held = [header for header in twin if header.epoch <= asked]
        expected = OffsetAndEpoch(held[-1].end_offset, held[-1].epoch) if held else OffsetAndEpoch(0, 0)
        assert view.end_offset_for_epoch(asked) == expected


def test_a_batch_that_does_not_continue_the_log_is_refused(batches_of: Batches) -> None:
    first, second = (read_header(data) for data in batches_of(((1, 2), (1, 1))))
    view = LogView.from_headers([first])
    with pytest.raises(InvariantViolation, match="does not continue"):
        view.append(first)
    with pytest.raises(InvariantViolation, match="does not continue"):
        view.append(msgspec.structs.replace(second, previous_crc=7))


def test_truncation_into_a_batch_is_refused(batches_of: Batches) -> None:
    view = LogView.from_headers(read_header(data) for data in batches_of(((1, 4),)))
    with pytest.raises(InvariantViolation, match="3 is no batch boundary"):
        view.truncate(3)


def test_a_log_that_starts_behind_a_snapshot_knows_what_precedes_it(batches_of: Batches) -> None:
    data = batches_of(((4, 2),), 100, 77)
    view = LogView.from_headers([read_header(data[0])], OffsetAndEpoch(100, 3), 77)
    assert view.end_offset_for_epoch(3) == OffsetAndEpoch(100, 3)
    assert view.crc_at(100) == 77
    view.truncate(100)
    assert view.end == OffsetAndEpoch(100, 3)
