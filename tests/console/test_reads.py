"""Questions over HTTP: names that do not exist, odd numbers, and who may ask. Never a traceback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import trio
from starlette.testclient import TestClient

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client.results import AllLogDirs
from kraftlab.client.security import ClientSecurity
from kraftlab.common.audit import AuditLog
from kraftlab.console import reads
from kraftlab.console.app import Guard, application
from kraftlab.console.core import THREADS, Console, Settings
from kraftlab.console.follower import Follower
from kraftlab.console.reads import READS
from kraftlab.console.streams import Streams
from kraftlab.console.visitors import Visitors
from kraftlab.metadata.acls import Operation
from kraftlab.metadata.records import RegisterBroker

from .scripted_log import ID, ScriptedClient, ScriptedLog, ScriptedNode, endpoints


class Token:
    def run_sync_soon(self, function: object) -> None:
        """Do nothing: nobody reads the streams."""


class Client(ScriptedClient):
    """A client of a cluster without users, groups and log directories."""

    speaks_kafka = False
    security = ClientSecurity()

    def call(self, answer: type[Any], request: Any, **options: object) -> Any:
        return pb.DescribeClusterResponse(cluster_authorized_operations=sum(1 << each for each in Operation))

    def describe_configs(self, resources: Any, **options: object) -> dict[Any, Any]:
        return {}

    def all_log_dirs(self, wanted: Any, **options: object) -> AllLogDirs:
        return AllLogDirs({}, {})


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    """A console of topic orders with one partition, and broker 1."""
    log = ScriptedLog()
    log.topic("orders")
    log.append(RegisterBroker(0, 1, ID, 0))
    client = Client({endpoints(1)[0]: ScriptedNode(log)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio.lowlevel, "current_trio_token", Token)
        streams = Streams()
    follower = Follower(client.as_client(), endpoints(1), streams)
    follower.step()
    settings = Settings(False, False, None, (), frozenset(), secure=False, runs=False)
    visitors = Visitors(client.as_client(), lambda security: client.as_client(), AuditLog())
    console = Console(client.as_client(), follower, visitors, streams, settings)
    with TestClient(Guard(application(console, {}, settings), settings), "http://127.0.0.1:8090", backend="trio") as found:
        yield found


def error_of(api: TestClient, path: str) -> tuple[int, str, int | None]:
    answer = api.get(f"/api/v1/{path}")
    error = answer.json()["error"]
    assert len(error["message"]) > 20
    return answer.status_code, error["name"], error.get("code")


@pytest.mark.parametrize(
    "path",
    [
        "topics/nobody",
        "partitions/nobody/0/history",
        "partitions/orders/7/history",
        "disks?topic=nobody",
        "disks?topic=orders&partition=7",
    ],
)
def test_an_unknown_topic_or_partition_is_not_found_as_in_kafka(api: TestClient, path: str) -> None:
    assert error_of(api, path) == (404, "UNKNOWN_TOPIC_OR_PARTITION", 3)


@pytest.mark.parametrize("path", ["brokers/9/configs", "brokers/9/drain", "disks?broker=9", "disks?broker=9&topic=orders"])
def test_an_unknown_broker_is_not_found_as_in_kafka(api: TestClient, path: str) -> None:
    assert error_of(api, path) == (404, "BROKER_ID_NOT_REGISTERED", 102)


def test_many_who_ask_for_elections_do_not_keep_others_waiting(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    others_were_answered = threading.Event()

    def picture(data: object, epoch: int) -> list[int]:
        assert others_were_answered.wait(20)
        return [epoch]

    monkeypatch.setattr(reads, "picture", picture)
    with ThreadPoolExecutor(2 * THREADS) as asking:
        answers = [asking.submit(api.get, f"/api/v1/election?epoch={epoch}") for epoch in range(2 * THREADS)]
        assert api.get("/api/v1/topics").status_code == 200
        others_were_answered.set()
        assert [answer.result().json() for answer in answers] == [[epoch] for epoch in range(2 * THREADS)]


ODD = ["-1", "1" + 30 * "0", "1e3", "１２", "x", "1.5", " 1", "0x10", "9007199254740993"]
NUMBERS = [
    "topics?from=",
    "topics?limit=",
    "topics?broker=",
    "partitions?from=",
    "partitions?limit=",
    "partitions?broker=",
    "election?epoch=",
    "records?before=",
    "records?after=",
    "records?limit=",
    "groups?from=",
    "groups?limit=",
    "disks?broker=",
    "disks?topic=orders&partition=",
]


@pytest.mark.parametrize("path", NUMBERS)
def test_odd_numbers_are_refused_with_the_numbers_that_are_expected(api: TestClient, path: str) -> None:
    for odd in ODD:
        answer = api.get(f"/api/v1/{path}{odd}")
        assert (odd, answer.status_code) == (odd, 400)
        assert "send a whole number from " in answer.json()["error"]["message"]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("path", ["brokers/{}/configs", "brokers/{}/drain", "partitions/orders/{}/history"])
def test_odd_numbers_in_a_path_are_refused(api: TestClient, path: str, odd: str) -> None:
    assert error_of(api, path.format(odd))[:2] == (400, "BAD_REQUEST")


@pytest.mark.parametrize("path", [each for each in NUMBERS if not each.startswith("groups")])
def test_a_number_that_is_left_empty_is_not_given(api: TestClient, path: str) -> None:
    assert api.get(f"/api/v1/{path}").status_code == 200


def test_no_rows_are_an_answer_and_no_events_are_refused(api: TestClient) -> None:
    assert api.get("/api/v1/topics?limit=0").json()["rows"] == []
    assert error_of(api, "records?limit=0") == (400, "BAD_REQUEST", None)


@pytest.mark.parametrize("at", [*ODD, "9" * 18, "@" + "9" * 15, "99999-01-01", "0001-01-01", "9999-12-31T23:59:59-23:59", "%00"])
@pytest.mark.parametrize("path", ["image?at={}", "diff?from={}&to=now", "diff?from=0&to={}"])
def test_no_moment_is_an_accident(api: TestClient, path: str, at: str) -> None:
    assert api.get(f"/api/v1/{path.format(at)}").status_code in (200, 400, 409)


@pytest.mark.parametrize("path", [each for each in READS if each != "events" and not each.startswith("groups")])
@pytest.mark.parametrize("odd", ["%00", "%ff", "%F0%9F%A6%91", "..%2f", "a" * 300])
def test_odd_names_are_no_accident(api: TestClient, path: str, odd: str) -> None:
    path = path.format(topic=odd, partition=odd, broker=odd)
    for query in ("", f"?q={odd}", f"?topic={odd}&sort={odd}&state={odd}", f"?order={odd}&about={odd}&kind={odd}&path={odd}"):
        assert api.get(f"/api/v1/{path}{query}").status_code in (200, 400, 404, 409)


def test_a_partition_needs_its_topic(api: TestClient) -> None:
    assert error_of(api, "disks?partition=0") == (400, "BAD_REQUEST", None)


@pytest.mark.parametrize("path", ["nothing", "runs/", "dom", "quorumm"])
def test_people_get_a_page_for_an_address_without_one(api: TestClient, path: str) -> None:
    answer = api.get(f"/{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")


@pytest.mark.parametrize("path", ["nothing", "actions/elect", "topics/a/b"])
def test_what_the_api_does_not_have_says_where_it_is_described(api: TestClient, path: str) -> None:
    answer = api.get(f"/api/v1/{path}")
    assert answer.status_code in (404, 405)
    assert f"there is no GET /api/v1/{path}; see /quorum, or docs/console.md" in answer.json()["error"]["message"]
