"""The epoch index against a twin that keeps the epoch of every record in a list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.errors import InvariantViolation
from kraftlab.quorum.core import OffsetAndEpoch
from kraftlab.quorum.core.epoch_index import EpochIndex

record_epochs = st.lists(st.integers(1, 8), max_size=30).map(sorted)


def index_of(epochs: list[int]) -> EpochIndex:
    index = EpochIndex()
    for offset, epoch in enumerate(epochs):
        index.assign(epoch, offset)
    return index


def naive_end_of(epochs: list[int], asked: int) -> OffsetAndEpoch | None:
    held = [epoch for epoch in epochs if epoch <= asked]
    return OffsetAndEpoch(len(held), held[-1]) if held else None


@given(record_epochs, st.integers(0, 9))
def test_finds_the_largest_epoch_not_above_and_where_it_ends(epochs: list[int], asked: int) -> None:
    assert index_of(epochs).end_of(asked, len(epochs)) == naive_end_of(epochs, asked)


@given(record_epochs, st.integers(0, 30), st.integers(0, 9))
def test_truncation_leaves_the_index_of_the_shorter_log(epochs: list[int], to_offset: int, asked: int) -> None:
    index = index_of(epochs)
    index.truncate(to_offset)
    kept = epochs[:to_offset]
    assert index.end_of(asked, len(kept)) == naive_end_of(kept, asked)
    assert index.last_epoch == (kept[-1] if kept else 0)


@given(record_epochs, st.integers(0, 30), st.integers(0, 9))
def test_cleaning_leaves_the_index_of_the_remaining_log(epochs: list[int], start_offset: int, asked: int) -> None:
    start_offset = min(start_offset, len(epochs))
    index = index_of(epochs)
    index.clean(start_offset, len(epochs))
    kept = [(offset, epoch) for offset, epoch in enumerate(epochs) if offset >= start_offset]
    held = [(offset, epoch) for offset, epoch in kept if epoch <= asked]
    expected = OffsetAndEpoch(held[-1][0] + 1, held[-1][1]) if held else None
    assert index.end_of(asked, len(epochs)) == expected
    assert len(index) == len({epoch for _, epoch in kept})
    assert all(index.epoch_at(offset) == epoch for offset, epoch in kept)
    index.assign(9, len(epochs))
    assert index.end_of(9, len(epochs) + 1) == OffsetAndEpoch(len(epochs) + 1, 9)


@given(record_epochs.filter(bool), st.data())
def test_knows_the_epoch_of_every_record(epochs: list[int], data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(epochs) - 1))
    assert index_of(epochs).epoch_at(offset) == epochs[offset]


def test_the_example_of_kip_595() -> None:
    index = EpochIndex()
    index.assign(1, 0)
    index.assign(3, 20)
    assert index.end_of(2, 30) == OffsetAndEpoch(20, 1)
    assert repr(index) == "epochs[1:0 3:20]"


def test_an_epoch_that_falls_is_refused() -> None:
    index = EpochIndex()
    index.assign(3, 0)
    with pytest.raises(InvariantViolation, match="epoch 2 cannot begin at 5"):
        index.assign(2, 5)
