from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.rpc import element_count
from kraftlab.rpc.element_count import has_too_many_elements
from kraftlab.rpc.methods import METHODS


def test_a_message_of_empty_entries_has_too_many() -> None:
    kind = pb.CreateTopicsRequest
    entry = b"\x12\x00"
    assert not has_too_many_elements(kind, entry * element_count.ELEMENTS_MAX)
    assert has_too_many_elements(kind, entry * (element_count.ELEMENTS_MAX + 1))


def elements(message: Any) -> int:
    """Count strings, nested messages and lists of numbers, field by field."""
    found = 0
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        if field.message_type is not None:
            found += sum(1 + elements(each) for each in values)
        elif field.cpp_type == field.CPPTYPE_STRING:
            found += len(values)
        elif field.is_repeated:
            found += 1
    return found


topics = st.builds(
    pb.CreatableTopic,
    name=st.text(max_size=200),
    num_partitions=st.integers(-(2**31), 2**31 - 1),
    assignments=st.lists(
        st.builds(
            pb.CreatableReplicaAssignment,
            partition_index=st.integers(0, 5000),
            broker_ids=st.lists(st.integers(0, 1), max_size=3),
        ),
        max_size=3,
    ),
)


@given(st.lists(topics, max_size=4), st.integers(-1, 1))
def test_elements_are_counted_as_in_the_decoded_message(entries: list[pb.CreatableTopic], more: int) -> None:
    message = pb.CreateTopicsRequest(header=pb.RequestHeader(timeout_ms=2**31 - 1), topics=entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(element_count, "SMALL_BYTES", -1)
        patch.setattr(element_count, "ELEMENTS_MAX", elements(message) + more)
        assert has_too_many_elements(pb.CreateTopicsRequest, message.SerializeToString()) == (more < 0)


@given(st.sampled_from(sorted(METHODS)), st.binary(max_size=100))
def test_any_bytes_are_counted(api: str, data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(element_count, "SMALL_BYTES", -1)
        assert not has_too_many_elements(METHODS[api].request, data)
