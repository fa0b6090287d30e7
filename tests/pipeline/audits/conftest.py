"""Made-up logs: the rows of a few partitions, as a controller might write them, and as one hopes it never does."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from kraftlab.pipeline.audits.life_cycles import CHANGE, CREATE, SNAPSHOT, Change, PartitionKey, Replicas
from kraftlab.pipeline.kraft_log.batches import Record
from kraftlab.pipeline.kraft_log.reader import read_file

DATA = Path(__file__).parent.parent / "data"

Rows = list[tuple[PartitionKey, Change]]

BROKERS = st.integers(0, 5)
LISTS = st.lists(BROKERS, unique=True, max_size=4).map(tuple)
REPLICAS = st.lists(BROKERS, unique=True, min_size=1, max_size=4).map(tuple)
PAIRS = st.sampled_from([(), (), (0,), (1,), (0, 1), (4, 5)])


@st.composite
def _changes(draw: st.DrawFn) -> Change:
    """Any row: which fields are set is drawn on its own."""
    kind = draw(st.sampled_from([CHANGE] * 8 + [SNAPSHOT]))
    every = kind == SNAPSHOT

    def given(values: st.SearchStrategy[Any]) -> Any:
        return draw(values if every else st.none() | values)

    replicas = given(REPLICAS)
    return Change(
        offset=draw(st.integers(0, 2)),
        ts_ms=draw(st.integers(0, 100)),
        kind=kind,
        isr=given(LISTS),
        leader=given(st.integers(-1, 5)),
        replicas=replicas,
        adding=given(PAIRS),
        removing=given(PAIRS),
        directories=tuple(f"d{replica}" for replica in replicas) if replicas is not None and draw(st.booleans()) else None,
    )


@st.composite
def _logs(draw: st.DrawFn) -> Rows:
    """A few partitions' rows in the order of the log; a log may begin with a creation, a snapshot, or in the middle."""
    keys = [PartitionKey(f"id-{topic}", topic, partition) for topic in ("a", "b") for partition in (0, 1)]
    begin = {key: draw(st.sampled_from([CREATE, SNAPSHOT, CHANGE])) for key in keys}
    rows: Rows = []
    offset = 0
    for key, change in draw(st.lists(st.tuples(st.sampled_from(keys), _changes()), max_size=25)):
        offset += change.offset
        kind = begin.pop(key, change.kind)
        if kind == CREATE:
            replicas = change.replicas or (1, 2)
            change = Change(0, change.ts_ms, CREATE, replicas, replicas[0], replicas, (), ())
        elif kind == SNAPSHOT:
            change = change._replace(
                replicas=change.replicas or (1, 2), adding=change.adding or (), removing=change.removing or ()
            )
        rows.append((key, change._replace(offset=offset, kind=kind)))
    return rows


@pytest.fixture(scope="session")
def logs() -> st.SearchStrategy[Rows]:
    """Hypothesis's strategy of logs."""
    return _logs()


class Recording(NamedTuple):
    """What a real Kafka's log holds about partitions."""

    rows: Rows
    deletions: dict[str, tuple[int, int]]


def _tuple(values: list[int] | None) -> Replicas | None:
    return None if values is None else tuple(values)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The recorded log, straight from its decoder."""
    path = tmp_path_factory.mktemp("kafka") / "00000000000000000000.log"
    path.write_bytes(lzma.decompress((DATA / f"{path.name}.xz").read_bytes()))
    names: dict[str, str] = {}
    rows: Rows = []
    deletions = {}
    for batch in read_file(path):
        for record in batch.records:
            if not isinstance(record, Record):
                continue
            data = record.data
            if record.type == "TOPIC_RECORD":
                names[data["topicId"]] = data["name"]
            elif record.type == "REMOVE_TOPIC_RECORD":
                deletions[data["topicId"]] = (record.offset, record.timestamp_ms)
            elif record.type in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"):
                key = PartitionKey(data["topicId"], names[data["topicId"]], data["partitionId"])
                lists = {name: _tuple(data.get(name)) for name in ("isr", "replicas", "addingReplicas", "removingReplicas")}
                change = Change(
                    record.offset,
                    record.timestamp_ms,
                    CREATE if record.type == "PARTITION_RECORD" else CHANGE,
                    lists["isr"],
                    data.get("leader"),
                    lists["replicas"],
                    lists["addingReplicas"],
                    lists["removingReplicas"],
                    _tuple(data.get("directories")),
                )
                rows.append((key, change))
    return Recording(rows, deletions)


@pytest.fixture(scope="session")
def told() -> Callable[[str], bytes]:
    """What was done to the recorded cluster (`history.json`) and how it ended (`final-state.json`)."""
    return lambda name: lzma.decompress((DATA / f"{name}.xz").read_bytes())
