"""The table of calls: it matches the Admin service, and a node that lacks a handler does not start."""

from __future__ import annotations

import pytest

from kraftlab.client.kafka_calls import SEVERAL
from kraftlab.rpc.calls import CALLS, CONNECTION, LISTENER, Row, check_handlers
from kraftlab.rpc.methods import METHODS


def of_brokers(row: Row) -> bool:
    return row.is_brokers


def test_every_call_that_is_served_is_a_method_of_the_admin_service_or_of_a_kafka_listener() -> None:
    assert {api for api, row in CALLS.items() if row.place not in (None, LISTENER, CONNECTION)} == METHODS.keys()
    assert all(row.lowest <= row.highest for row in CALLS.values())


def test_clients_of_a_kafka_cluster_name_only_known_calls() -> None:
    assert SEVERAL.keys() <= METHODS.keys()


def test_a_missing_handler_is_named() -> None:
    handled = {api for api, row in CALLS.items() if row.is_brokers}
    check_handlers("the broker", handled, of_brokers)
    with pytest.raises(LookupError, match="the broker has no handler of OnlineLogDir"):
        check_handlers("the broker", handled - {"OnlineLogDir"}, of_brokers)


@pytest.mark.parametrize("name", ["NoSuchCall", "Vote"])
def test_a_handler_without_a_row_is_named(name: str) -> None:
    with pytest.raises(LookupError, match=f"{name} has no row"):
        check_handlers("the broker", {name}, lambda row: False)


def test_a_method_without_a_row_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "CreateTables", METHODS["CreateTopics"])
    with pytest.raises(LookupError, match="CreateTables has no row"):
        check_handlers("the broker", (), lambda row: False)
