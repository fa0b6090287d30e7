"""Outcomes of requests from the answers to their attempts."""

from __future__ import annotations

import grpc
import pytest

from kraftlab.client.attempts import Attempts
from kraftlab.client.errors import OutcomeUnknown
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ApiError, ErrorCode

ONE, OTHER = Endpoint("one", 1), Endpoint("other", 2)
TIMED_OUT = ApiError(ErrorCode.REQUEST_TIMED_OUT, "nothing was done.")
NOT_CONTROLLER = ApiError(ErrorCode.NOT_CONTROLLER, "ask another")
DONE_PERHAPS = OutcomeUnknown(ErrorCode.NOT_CONTROLLER, "it was appended.", 7)
REFUSED, BROKEN = grpc.RpcError("connection refused"), grpc.RpcError("the connection broke")


def sent(*, once: bool = False) -> Attempts:
    return Attempts("CreateTopics", once=once)


def test_a_timeout_is_one_of_the_request_if_no_node_can_have_carried_it_out():
    attempts = sent()
    attempts.add_no_answer(ONE, REFUSED, had_time=True)
    attempts.add_refusal(OTHER, NOT_CONTROLLER)
    attempts.end_with(TIMED_OUT)
    assert "one:1: connection refused; other:2: " in attempts.summary(1.25)
    assert "CreateTopics within 1.2 s" in attempts.summary(1.25)


def test_a_last_timeout_does_not_exclude_an_earlier_effect():
    attempts = sent()
    attempts.add_no_answer(ONE, BROKEN, had_time=True)
    with pytest.raises(OutcomeUnknown, match=r"nothing was done\. But one:1 was asked before and did not answer"):
        attempts.end_with(TIMED_OUT)
    attempts.end_with(ApiError(ErrorCode.TOPIC_ALREADY_EXISTS))  # An answer that says all there is to say.


def test_a_node_that_may_have_carried_it_out_is_remembered_when_another_is_asked():
    attempts = sent()
    attempts.add_refusal(ONE, DONE_PERHAPS)
    with pytest.raises(OutcomeUnknown, match=r"But one:1 was asked before: it was appended\."):
        attempts.end_with(TIMED_OUT)


def test_a_request_to_send_once_is_not_repeated_after_a_possible_effect():
    attempts = sent(once=True)
    attempts.add_no_answer(ONE, REFUSED, had_time=True)
    attempts.add_refusal(OTHER, NOT_CONTROLLER)
    with pytest.raises(ApiError, match="the request may have taken effect") as raised:
        attempts.add_no_answer(ONE, BROKEN, had_time=True)
    assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
    with pytest.raises(OutcomeUnknown) as unknown:
        attempts.add_refusal(OTHER, DONE_PERHAPS)
    assert unknown.value is DONE_PERHAPS


def test_no_api_is_found_until_one_answers():
    attempts = sent()
    assert attempts.found_no_api
    attempts.add_no_answer(ONE, REFUSED, had_time=True)
    assert attempts.found_no_api
    assert attempts.has_failed_at(ONE)
    assert not attempts.has_failed_at(OTHER)
    assert attempts.so_far() == "one:1: connection refused"
    attempts.add_no_answer(OTHER, BROKEN, had_time=True)
    assert not attempts.found_no_api
