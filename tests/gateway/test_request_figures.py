"""Metrics of requests: the error codes in answers, and what a client's requests leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kraftlab.common.errors import ErrorCode
from kraftlab.gateway.answer_codes import codes_in, codes_in_frame
from kraftlab.gateway.codec import Header, encode_response
from kraftlab.gateway.door import CONTROLLERS_OFFERS, OFFERS
from kraftlab.gateway.request_figures import RequestFigures
from kraftlab.messages.catalog import response_class
from kraftlab.messages.generated import fetch_response, produce_response
from kraftlab.messages.schema import Structure
from kraftlab.metrics.exposition import Exposition
from kraftlab.wire.parts import InMemory

CODE = 17
SERVED = {**OFFERS, **CONTROLLERS_OFFERS}


def filled(kind: type[Structure]) -> Any:
    """Return a structure with two elements in each list, and CODE as each error code."""
    values: dict[str, Any] = {}
    for field in kind.FIELDS:
        if isinstance(field.kind, type):
            inner = filled(field.kind)
            values[field.name] = [inner, inner] if field.is_array else inner
        elif field.name == "error_code":
            values[field.name] = CODE
    return kind(**values)


def every_code(value: object) -> Iterator[int]:
    """Walk over all that a structure holds."""
    if isinstance(value, Structure):
        for field in value.FIELDS:
            inner = getattr(value, field.name)
            if field.name == "error_code":
                yield inner
            for each in inner if isinstance(inner, list) else [inner]:
                yield from every_code(each)


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: SERVED[key].name)
def test_every_error_code_of_an_answer_is_found(key: int) -> None:
    answer = filled(response_class(key))
    assert codes_in(answer) == list(every_code(answer))


def produced(code: int) -> produce_response.ProduceResponse:
    row = produce_response.PartitionProduceResponse(index=0, error_code=code, base_offset=5)
    return produce_response.ProduceResponse(
        responses=[produce_response.TopicProduceResponse(name="t", partition_responses=[row])]
    )


def test_codes_are_read_from_a_frame_and_a_frame_that_cannot_be_read_has_none() -> None:
    head = Header(0, 9, 1)
    frame = b"".join(part for part in encode_response(head, produced(CODE)) if isinstance(part, InMemory))
    assert codes_in_frame(head, frame) == [CODE]
    assert codes_in_frame(head, frame[:-3]) == []


def test_entries_that_are_bytes_already_are_left_out() -> None:
    topics: Any = [b"encoded"]
    assert codes_in(fetch_response.FetchResponse(error_code=CODE, responses=topics)) == [CODE]


def test_fetches_count_as_those_of_consumers_too() -> None:
    figures = RequestFigures()
    for milliseconds in (1, 2, 3):
        figures.arrived("Fetch", 12)
        figures.answered("Fetch", [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, 12345])
        figures.sent("Fetch", 0.0, milliseconds / 1000, milliseconds / 1000 + 0.5)
    figures.arrived("Produce", 3)
    page = Exposition()
    figures.snapshot()(page)
    families = {family.name: family for family in text_string_to_metric_families(page.text())}
    errors = {(each.labels["request"], each.labels["error"]): each.value for each in _of(families, "errors")}
    names = ("NONE", "OFFSET_OUT_OF_RANGE", "12345")
    assert errors == {(request, name): 3 for request in ("Fetch", "FetchConsumer") for name in names}
    requests = {(each.labels["request"], each.labels["version"]): each.value for each in _of(families, "requests")}
    assert requests == {("Fetch", "12"): 3, ("FetchConsumer", "12"): 3, ("Produce", "3"): 1}
    local = {each.labels["quantile"]: each.value for each in _of(families, "localtimems") if each.labels["request"] == "Fetch"}
    assert local["0.50"] == pytest.approx(2)
    assert local["0.999"] == pytest.approx(3)
    sent = [each.value for each in _of(families, "responsesendtimems") if each.labels["request"] == "Fetch"]
    assert sent == [pytest.approx(500)] * 6


def _of(families: dict[str, Any], name: str) -> Any:
    return families[f"kafka_network_requestmetrics_{name}"].samples
