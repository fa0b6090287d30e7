"""A broker starts only with a handler for each of its calls, at its admin API and at its Kafka listener."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from kraftlab.broker.api import wiring
from kraftlab.gateway.door import Door
from kraftlab.rpc import calls

PARTS = wiring.Parts(*(MagicMock() for _ in wiring.Parts._fields))


def test_every_call_of_a_broker_has_a_handler() -> None:
    service = wiring.admin_service(PARTS)
    assert isinstance(wiring.door(PARTS, service), Door), "neither the admin API nor the Kafka listener lacks a handler"


def test_a_broker_without_a_handler_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    local = wiring.handlers(PARTS)
    fewer = {api: handler for api, handler in local.items() if api != "DescribeLogDirs"}
    monkeypatch.setattr(wiring, "handlers", lambda parts: fewer)
    with pytest.raises(LookupError, match="the broker has no handler of DescribeLogDirs"):
        wiring.admin_service(PARTS)


def test_a_kafka_listener_without_a_handler_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    row = calls.CALLS["Fetch"]._replace(name="NewFetch")
    service = wiring.admin_service(PARTS)
    monkeypatch.setitem(calls.CALLS, "NewFetch", row)
    with pytest.raises(LookupError, match="the broker's Kafka listener has no handler of NewFetch"):
        wiring.door(PARTS, service)
