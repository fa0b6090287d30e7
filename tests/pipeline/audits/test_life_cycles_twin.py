"""The stepper against a naive twin that keeps every state and looks for stretches with an equal pair."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.pipeline.audits.life_cycles import SNAPSHOT, Change, PartitionKey, Reassignment, all_life_cycles

Rows = list[tuple[PartitionKey, Change]]


class State(NamedTuple):
    """The partition after a row; `pair` and `replicas` are None as long as nothing said them."""

    row: Change | None
    replicas: tuple[int, ...] | None
    pair: tuple[frozenset[int], frozenset[int]] | None
    leader: int | None
    isr: tuple[int, ...] | None


def _states(changes: list[Change]) -> list[State]:
    states = [State(None, None, None, None, None)]
    for change in changes:
        _, replicas, pair, leader, isr = states[-1]
        if change.adding is not None or change.removing is not None or (pair is None and change.replicas is not None):
            old = pair or (frozenset(), frozenset())
            new = [old[0] if change.adding is None else frozenset(change.adding)]
            new.append(old[1] if change.removing is None else frozenset(change.removing))
            pair = (new[0], new[1])
        states.append(
            State(
                change,
                change.replicas if change.replicas is not None else replicas,
                pair,
                change.leader if change.leader is not None else leader,
                change.isr if change.isr is not None else isr,
            )
        )
    return states


def _runs(state: State) -> bool:
    return state.pair is not None and bool(state.pair[0] or state.pair[1])


def _cycles(states: list[State]) -> list[dict[str, Any]]:
    found = []
    for start in range(1, len(states)):
        if not _runs(states[start]) or states[start].pair == states[start - 1].pair:
            continue
        end = next((at for at in range(start + 1, len(states)) if states[at].pair != states[start].pair), None)
        assert states[start].row is not None and states[start].pair is not None
        inside = range(start + 1, len(states) if end is None else end)
        ended = [] if end is None else [end]
        adding = states[start].pair[0]
        isrs = [
            (states[at].row, states[at].isr) for at in [start, *inside, *ended] if at == start or states[at].row.isr is not None
        ]
        found.append(
            {
                "seen": states[start].row.offset,
                "truncated": states[start].row.kind == SNAPSHOT,
                "end": None if end is None else states[end].row.offset,
                "superseded": end is not None and _runs(states[end]),
                "leader_changes": sum(states[at].row.leader not in (None, states[at - 1].leader) for at in [*inside, *ended]),
                "isr_shrinks": sum(bool(set(states[at - 1].isr or ()) - set(states[at].isr or ())) for at in inside),
                "caught_up": {
                    replica: next((row.offset for row, isr in isrs if replica in (isr or ())), None) for replica in adding
                },
                "skew": any(
                    states[later].row.ts_ms < states[earlier].row.ts_ms
                    for earlier in [start, *inside]
                    for later in [*inside, *ended]
                    if earlier < later
                    and (earlier == start or states[earlier].row.kind != SNAPSHOT)
                    and states[later].row.kind != SNAPSHOT
                ),
            }
        )
    return found


def _shown(cycle: Reassignment) -> dict[str, Any]:
    return {
        "seen": int(cycle.reassignment_id.rpartition(":")[2].removeprefix("before-")),
        "truncated": cycle.truncated_left,
        "end": cycle.end_offset,
        "leader_changes": cycle.leader_changes,
        "isr_shrinks": cycle.isr_shrinks,
        "caught_up": {row.replica: row.caught_up_offset for row in cycle.replicas if row.role == "adding"},
        "skew": cycle.clock_skew,
    }


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_stretch_of_adding_and_removing_is_a_life_cycle(logs: st.SearchStrategy[Rows], data: st.DataObject):
    rows = data.draw(logs)
    found = all_life_cycles(rows)
    for key in {key for key, _ in rows}:
        states = _states([change for other, change in rows if other == key])
        stepped = [cycle for cycle in found if (cycle.topic_id, cycle.partition) == (key.topic_id, key.partition)]
        running = [cycle for cycle in stepped if cycle.status not in ("instant", "unknown")]
        expected = _cycles(states)
        assert [_shown(cycle) for cycle in running] == [
            {name: value for name, value in twin.items() if name != "superseded"} for twin in expected
        ]
        for cycle, twin in zip(running, expected, strict=True):
            if twin["end"] is None or twin["superseded"]:
                assert cycle.status == ("open" if twin["end"] is None else "superseded")
            else:
                assert cycle.status in ("completed", "cancelled", "superseded")


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_ids_are_unique_and_offsets_lie_within_the_log(logs: st.SearchStrategy[Rows], data: st.DataObject):
    rows = [(key, change._replace(offset=number)) for number, (key, change) in enumerate(data.draw(logs))]
    found = all_life_cycles(rows)
    assert len({cycle.reassignment_id for cycle in found}) == len(found)
    for cycle in found:
        assert cycle.truncated_left == (cycle.start_offset is None)
        assert (cycle.end_offset is None) == (cycle.status == "open")
        assert cycle.duration_ms is None or cycle.duration_ms >= 0
        assert cycle.superseded_by is None or cycle.superseded_by in {other.reassignment_id for other in found}
