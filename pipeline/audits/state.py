"""What a partition was at an offset: its change records applied one after the other up to there.

The replication factor that a partition has settled on is that of its list while nothing runs; while a reassignment runs, that of
the list before the first of the run, which a snapshot or a record of our own names and Kafka's records do not: a log of Kafka's
that begins with a running reassignment leaves the list without the adding replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .life_cycles import Change, PartitionKey, PartitionState, Removal


def partition_states(
    rows: Iterable[tuple[PartitionKey, Change]],
    at_offset: int | None = None,
    deletions: Mapping[str, Removal] | None = None,
) -> list[PartitionState]:
    """The state after the record at `at_offset`, of all partitions whose topic exists then; None is after all of them. A removal
    that lies before any row of a partition was none, as for life cycles.
    """
    states: dict[tuple[str, int], PartitionState] = {}
    for key, change in rows:
        if at_offset is not None and change.offset > at_offset:
            continue
        before = states.get((key.topic_id, key.partition))
        if before is None:
            before = PartitionState(*key, None, None, None, None, None, None, None, change.offset)
        states[key.topic_id, key.partition] = _applied(before, change)
    removed = {
        topic_id: offset for topic_id, (offset, _) in (deletions or {}).items() if at_offset is None or offset <= at_offset
    }
    return sorted(state for state in states.values() if state.since_offset >= removed.get(state.topic_id, -1))


def _applied(state: PartitionState, change: Change) -> PartitionState:
    given = {
        name: value
        for name in ("replicas", "isr", "leader", "adding", "removing", "directories")
        if (value := getattr(change, name)) is not None
    }
    after = state._replace(since_offset=change.offset, **given)
    if after.replicas is None:
        return after
    if not after.adding and not after.removing:
        return after._replace(rf_settled=len(after.replicas))
    if change.original:
        return after._replace(rf_settled=len(change.original))
    if state.rf_settled is None:
        return after._replace(rf_settled=len(set(after.replicas).difference(after.adding or ())))
    return after
