"""M7 judges acknowledged metrics of subscriptions by the committed log, not by attempts that were not acknowledged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraftlab.config.resources import ResourceType
from kraftlab.controller.engine.purgatory import Answer
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, Provenance
from kraftlab.metadata.records import Config
from kraftlab.simulation.metadata.named_requests import METRICS
from kraftlab.simulation.metadata.world import MetadataWorld


def operation(offset: int, value: str, *, is_acknowledged: bool) -> Any:
    answer: Answer[bool] | None = Answer() if is_acknowledged else None
    if answer is not None:
        answer.succeed(True, offset + 1)
    return SimpleNamespace(
        records=[Config(0, ResourceType.CLIENT_METRICS, "mine", METRICS, value)], base_offset=offset, answer=answer
    )


def violations(in_the_end: str, *operations: Any) -> list[str]:
    delta = MetadataDelta(EMPTY)
    delta.replay(Config(0, ResourceType.CLIENT_METRICS, "mine", METRICS, in_the_end), 100)

    found: list[str] = []
    world: Any = SimpleNamespace(operations=operations, violated=found.append)
    MetadataWorld.check_configs(world, delta.apply(Provenance(101, 1, 0)))
    return found


def test_an_older_value_than_the_one_acknowledged_last_is_noticed() -> None:
    found = violations("a", operation(90, "a", is_acknowledged=True), operation(100, "b", is_acknowledged=True))
    assert [text for text in found if "M7 mine was acknowledged at 100, and is 'a' in the end" in text]


def test_a_deposed_leader_that_was_asked_for_the_same_value_later_takes_nothing_back() -> None:
    assert violations("a", operation(100, "a", is_acknowledged=True), operation(90, "a", is_acknowledged=False)) == []
