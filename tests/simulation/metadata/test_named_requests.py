"""M10 judges answers to requests with ids, and what such requests have written."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ErrorCode
from kraftlab.config.resources import ResourceType
from kraftlab.controller.engine import exactly_once
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.records import AnyRecord, Config, RequestOutcome
from kraftlab.metadata.requests import packed
from kraftlab.rpc.server import Call
from kraftlab.simulation.consensus.invariants import Violation
from kraftlab.simulation.metadata.named_requests import METRICS, SUBSCRIPTIONS, NamedRequests
from kraftlab.simulation.metadata.replayed_log import raise_violation

CLIENT = b"c" * 16


@pytest.fixture
def named() -> NamedRequests:
    return NamedRequests(raise_violation)


def after(image: MetadataImage, *records: AnyRecord) -> MetadataImage:
    delta, offset = MetadataDelta(image), image.provenance.offset
    delta.replay_all(records, offset)
    return delta.apply(Provenance(offset + len(records), 1, 0))


def call(sequence: int = 1, broker_id: int = 0) -> Call:
    request = admin_pb2.AllocateProducerIdsRequest(broker_id=broker_id)
    request.header.request_id.client_id, request.header.request_id.sequence = CLIENT, sequence
    return Call("AllocateProducerIds", request, "User:ANONYMOUS")


def outcome(asked: Call, start: int) -> RequestOutcome:
    """Return the record of a request's answer."""
    identity = exactly_once.identity_of(asked.api, asked.principal, asked.request)
    assert identity is not None
    answer = packed(admin_pb2.AllocateProducerIdsResponse(producer_id_start=start).SerializeToString())
    return RequestOutcome(0, CLIENT, identity.sequence, identity.digest, 0, answer)


def answer(start: int = 0, offset: int = 0, code: int = 0) -> Any:
    response = admin_pb2.AllocateProducerIdsResponse(producer_id_start=start)
    response.header.metadata_offset, response.header.error_code = offset, code
    return response


def test_the_answer_in_the_log_is_right_however_often_it_is_given() -> None:
    violations: list[str] = []
    named = NamedRequests(violations.append)
    named.arrived(call())
    named.extend(after(EMPTY, outcome(call(), 1000)))
    named.answered(call(), answer(1000, 1))
    named.answered(call(), answer(1000, 1))
    assert violations == []
    named.answered(call(), answer(1001, 1))
    assert len(violations) == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (answer(2000, 1), "is answered at 1, and the log says"),
        (answer(1000, 2), "is answered at 2, and the log says"),
        (answer(code=ErrorCode.INVALID_REQUEST), "is taken for another"),
        (answer(code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER), "is refused as too old, and there are 0 newer ones"),
    ],
)
def test_another_answer_is_noticed(named: NamedRequests, given: Any, words: str) -> None:
    named.arrived(call())
    named.extend(after(EMPTY, outcome(call(), 1000)))
    with pytest.raises(Violation, match=f"M10 request 1 of client .* {words}"):
        named.answered(call(), given)


def test_an_answer_to_a_request_that_the_log_does_not_have_is_noticed(named: NamedRequests) -> None:
    named.arrived(call())
    with pytest.raises(Violation, match=r"M10 request 1 of client .* is answered, and it is not in the log"):
        named.answered(call(), answer(1000, 1))


def test_an_old_request_may_be_refused_after_five_newer_ones(named: NamedRequests) -> None:
    for sequence in range(1, 7):
        named.arrived(call(sequence))
    named.answered(call(1), answer(code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    with pytest.raises(Violation, match="there are 4 newer ones"):
        named.answered(call(2), answer(code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER))


def test_a_value_that_comes_back_was_written_twice(named: NamedRequests) -> None:
    image = EMPTY
    for value in ("one", "one", "two"):
        image = after(image, Config(0, ResourceType.CLIENT_METRICS, SUBSCRIPTIONS[0], METRICS, value))
        named.extend(image)
    with pytest.raises(Violation, match=f"M10 {SUBSCRIPTIONS[0]} is one for the second time"):
        named.extend(after(image, Config(0, ResourceType.CLIENT_METRICS, SUBSCRIPTIONS[0], METRICS, "one")))
