"""Names of replicas' directories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.broker.log.dir_names import TRANSIENT, DirKind, DirName, current_name, keeps_name_inside, parse, transient_name
from kraftlab.broker.log.errors import TopicNameTooLong

topics = st.text(alphabet="abcXYZ019._-", min_size=1, max_size=249)
partitions = st.integers(0, 99_999)


@given(topics, partitions)
def test_current_names_come_back(topic: str, partition: int) -> None:
    assert parse(current_name(topic, partition)) == DirName(topic, partition, DirKind.CURRENT)


@given(topics, partitions, st.sampled_from(TRANSIENT))
def test_other_names_fit_and_come_back_unless_the_directory_has_the_name_inside(
    topic: str, partition: int, kind: DirKind
) -> None:
    name = transient_name(topic, partition, kind)
    assert len(name) <= 255
    parsed = parse(name)
    assert parsed is not None
    assert (parsed.partition, parsed.kind) == (partition, kind)
    assert topic.startswith(parsed.topic)
    assert parsed.topic == topic or keeps_name_inside(topic)


def test_names_are_kafkas() -> None:
    assert current_name("orders", 3) == "orders-3"
    name = transient_name("a.b-c", 3, DirKind.FUTURE)
    assert name.startswith("a.b-c-3.")
    assert name.endswith("-future")
    assert len(name) == len("a.b-c-3.") + 32 + len("-future")
    assert parse("a.b-c-3.0123-delete") == DirName("a.b-c", 3, DirKind.DELETE)


@pytest.mark.parametrize(
    "name", ["lost+found", "orders", "-3", "orders-x", "orders-", "orders-3-future", "orders-3.-stray", "a b-1"]
)
def test_other_directories_are_not_replicas(name: str) -> None:
    assert parse(name) is None


def test_a_current_name_over_the_limit_is_refused() -> None:
    with pytest.raises(TopicNameTooLong):
        current_name("t" * 249, 100_000)
