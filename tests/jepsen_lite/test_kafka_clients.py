"""Outcomes of calls of kafka-python: nothing that may have had an effect is called a failure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors

from jepsen_lite import kafka_clients
from jepsen_lite.history import FAIL, INFO
from jepsen_lite.kafka_clients import KafkaClients, outcome_of
from jepsen_lite.workload import CallFailed
from kraftlab.common.errors import ErrorCode


class Client:
    """Stands for each of the three clients. What it does is set on the class; `made` counts the clients."""

    made = 0
    send: Any
    connect: BaseException | None = None

    def __init__(self, **configs: object) -> None:
        if self.connect is not None:
            raise self.connect
        type(self).made += 1

    def assign(self, partitions: object) -> None: ...

    def seek(self, partition: object, offset: int) -> None: ...

    def end_offsets(self, partitions: list[Any], timeout_ms: int) -> dict[Any, int]:
        return dict.fromkeys(partitions, 2)

    def position(self, partition: object, timeout_ms: int) -> int:
        return 0

    def poll(self, timeout_ms: int) -> dict[object, object]:
        return {}

    def close(self) -> None: ...


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    kind = type("Client", (Client,), {})
    for name in ("KafkaProducer", "KafkaConsumer", "KafkaAdminClient"):
        monkeypatch.setattr(kafka_clients, name, kind)
    return kind


def raises(error: BaseException) -> Any:
    def fail(*arguments: object, **others: object) -> Any:
        raise error

    return fail


def failure(call: Any, *arguments: object) -> tuple[str, str]:
    with pytest.raises(CallFailed) as caught:
        call(*arguments)
    return caught.value.outcome, caught.value.error


def test_an_append_that_was_not_sent_failed(client: type[Client]) -> None:
    client.send = raises(errors.KafkaTimeoutError())
    assert failure(KafkaClients("a:1", 100).append, "t", b"", b"") == (FAIL, "not sent: KafkaTimeoutError")
    client.connect = errors.KafkaTimeoutError()
    assert failure(KafkaClients("a:1", 100).append, "t", b"", b"") == (FAIL, "not sent, no connection: KafkaTimeoutError")


@pytest.mark.parametrize(
    "error, name",
    [
        (errors.KafkaTimeoutError(), "KafkaTimeoutError"),
        (errors.NotLeaderForPartitionError(), "NOT_LEADER_OR_FOLLOWER"),
        (errors.MessageSizeTooLargeError(), "MESSAGE_TOO_LARGE"),
    ],
)
def test_an_append_that_was_sent_may_be_in_the_log_whatever_its_last_error_says(
    client: type[Client], error: BaseException, name: str
) -> None:
    client.send = lambda *_, **__: SimpleNamespace(get=raises(error))
    assert failure(KafkaClients("a:1", 100).append, "t", b"", b"") == (INFO, name)


def test_a_read_that_does_not_reach_the_end_failed(client: type[Client]) -> None:
    assert failure(KafkaClients("a:1", 100).read, "t") == (FAIL, "KafkaTimeoutError")


@pytest.mark.parametrize(
    "error, outcome",
    [
        (errors.NodeNotReadyError(), FAIL),
        (errors.TopicAuthorizationFailedError(), FAIL),
        (RuntimeError("Failed to find active controller id!"), FAIL),
        (errors.KafkaConnectionError(), INFO),
        (errors.RequestTimedOutError(), INFO),
        (errors.UnknownError(), INFO),
    ],
)
def test_an_admin_request_failed_only_if_it_was_refused_or_not_sent(
    client: type[Client], error: BaseException, outcome: str
) -> None:
    assert failure(KafkaClients("a:1", 100).ask, raises(error))[0] == outcome


def test_an_admin_client_whose_broker_is_gone_is_replaced(client: type[Client]) -> None:
    clients = KafkaClients("a:1", 100)
    assert clients.ask(lambda admin: 1) == clients.ask(lambda admin: 1) == 1
    failure(clients.ask, raises(errors.KafkaConnectionError()))
    assert client.made == 1
    assert clients.ask(lambda admin: 2) == 2
    assert client.made == 2


def test_a_timeout_that_a_broker_answers_says_nothing() -> None:
    assert outcome_of(ErrorCode.REQUEST_TIMED_OUT) == INFO
    assert outcome_of(ErrorCode.TOPIC_ALREADY_EXISTS) == FAIL
    assert outcome_of(ErrorCode.NETWORK_EXCEPTION) == INFO


def test_a_mistake_of_the_harness_is_no_outcome(client: type[Client]) -> None:
    client.connect = errors.KafkaConfigurationError("unrecognized")
    with pytest.raises(errors.KafkaConfigurationError):
        KafkaClients("a:1", 100).ask(lambda admin: None)
    client.connect = None
    with pytest.raises(RuntimeError, match="thread"):
        KafkaClients("a:1", 100).ask(raises(RuntimeError("the thread is gone")))
