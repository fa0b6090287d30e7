"""Visitors of the console: which requests it takes, sessions, and the headers of every answer."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.testclient import TestClient

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.client import ClusterUnreachable
from kraftlab.client.security import ClientSecurity
from kraftlab.common.audit import AuditLog
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.console import visitors
from kraftlab.console.app import Guard, application
from kraftlab.console.core import Settings
from kraftlab.console.visitors import HEADERS, Refusal, Visitor, Visitors, check_host, check_write
from kraftlab.metadata.acls import Operation

PASSWORDS = {"admin": "secret", "reader": "word", "stranger": "none"}
RIGHTS = {"admin": {*Operation}, "reader": {Operation.DESCRIBE}, "stranger": set[Operation]()}


class Client:
    """A client of a cluster with the users above."""

    speaks_kafka = False

    def __init__(self, security: ClientSecurity) -> None:
        self.security = security
        self.is_closed = False
        self.calls = 0

    def call(self, answer: type[object], request: object, **options: object) -> pb.DescribeClusterResponse:
        self.calls += 1
        user = self.security.user or ""
        if PASSWORDS.get(user) != self.security.password:
            raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED)
        return pb.DescribeClusterResponse(cluster_authorized_operations=sum(1 << each for each in RIGHTS[user]))

    def close(self) -> None:
        self.is_closed = True


SECURE = ClientSecurity("SASL_PLAINTEXT", "PLAIN", "admin", "secret")


def made(security: ClientSecurity = SECURE, clients: list[Client] | None = None) -> Visitors:
    def connect(other: ClientSecurity) -> Client:
        client = Client(other)
        if clients is not None:
            clients.append(client)
        return client

    return Visitors(Client(security), connect, AuditLog())  # type: ignore[arg-type]


@given(st.ip_addresses(), st.integers(0, 65535))
def test_every_address_is_a_host(address: object, port: int) -> None:
    host = f"[{address}]:{port}" if ":" in str(address) else f"{address}:{port}"
    assert check_host(host, ()) is None


@pytest.mark.parametrize("host", ["localhost", "localhost:8090", "LAB.example:1", "127.0.0.1", "[::1]:8090"])
def test_known_names_are_hosts(host: str) -> None:
    assert check_host(host, {"lab.example"}) is None


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.evil.example:8090", "localhost.evil.example", "a b", "[::1", "\x00"]
)
def test_foreign_and_odd_names_are_refused(host: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_host(host, {"lab.example"})
    assert refusal.value.status == 403


GOOD = {"host": "127.0.0.1:8090", "sec-fetch-site": "same-origin", "x-kraftlab": "1", "content-type": "application/json"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, None),
        ({"sec-fetch-site": None, "origin": "http://127.0.0.1:8090"}, None),
        ({"content-type": "application/json; charset=utf-8"}, None),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1:8090"}, 403),
        ({"sec-fetch-site": None}, 403),
        ({"sec-fetch-site": None, "origin": "null"}, 403),
        ({"sec-fetch-site": None, "origin": "http://127.0.0.1:9999"}, 403),
        ({"sec-fetch-site": None, "origin": "https://127.0.0.1:8090"}, 403),
        ({"sec-fetch-site": None, "origin": "//127.0.0.1:8090"}, 403),
        ({"sec-fetch-site": "same-origin", "origin": "https://lab.example"}, None),
        ({"x-kraftlab": None}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": None}, 415),
    ],
)
def test_a_change_must_come_from_a_page_of_the_console(change: dict[str, str | None], status: int | None) -> None:
    headers = Headers({name: value for name, value in (GOOD | change).items() if value is not None})

    def refusal(call: Callable[[], None]) -> int | None:
        try:
            call()
        except Refusal as error:
            return error.status
        return None

    assert refusal(lambda: check_write(headers, "http")) == status


def test_an_origin_must_have_the_scheme_of_the_console() -> None:
    headers = Headers({**GOOD, "origin": "https://127.0.0.1:8090"})
    del (bare := headers.mutablecopy())["sec-fetch-site"]
    check_write(bare, "https")
    with pytest.raises(Refusal, match=r"Origin: http://127\.0\.0\.1:8090 and x-kraftlab: 1"):
        check_write(bare, "http")


def test_a_visitor_is_the_user_that_logged_in() -> None:
    clients: list[Client] = []
    sessions = made(clients=clients)
    key = sessions.log_in("reader", "word", "127.0.0.1")
    visitor = sessions.of(key)
    assert (visitor.user, visitor.may(Operation.DESCRIBE), visitor.may(Operation.ALTER)) == ("reader", True, False)
    assert clients[0].security.user == "reader"
    sessions.log_out(key)
    with pytest.raises(Refusal, match="log in"):
        sessions.of(key)
    assert clients[0].is_closed


def test_a_wrong_password_is_refused_and_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    clients: list[Client] = []
    with caplog.at_level(logging.WARNING, "kraftlab.audit"), pytest.raises(Refusal) as refusal:
        made(clients=clients).log_in("admin", "guess", "192.0.2.7")
    assert (refusal.value.status, clients[0].is_closed) == (401, True)
    assert "login failed: listener CONSOLE, 192.0.2.7" in caplog.text
    assert "guess" not in caplog.text


def test_a_user_without_describe_learns_which_rule_is_missing() -> None:
    with pytest.raises(Refusal, match="--allow-principal User:stranger --operation describe --cluster") as refusal:
        made().log_in("stranger", "none", "127.0.0.1")
    assert refusal.value.status == 403


def test_rights_are_asked_for_again_and_a_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(visitors.time, "monotonic", lambda: now)
    sessions = made()
    key = sessions.log_in("reader", "word", "127.0.0.1")
    monkeypatch.setitem(RIGHTS, "reader", set())
    assert sessions.of(key).user == "reader"
    now += visitors.CHECK_S
    with pytest.raises(Refusal, match="no right to DESCRIBE"):
        sessions.of(key)
    monkeypatch.setitem(RIGHTS, "reader", {Operation.DESCRIBE})
    now += visitors.SESSION_S
    with pytest.raises(Refusal, match="log in"):
        sessions.of(key)


def test_a_change_is_judged_by_the_rights_of_this_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = made()
    key = sessions.log_in("admin", "secret", "127.0.0.1")
    monkeypatch.setitem(RIGHTS, "admin", {Operation.DESCRIBE})
    assert sessions.of(key).may(Operation.ALTER)
    assert not sessions.of(key, now=True).may(Operation.ALTER)


def test_a_cluster_that_does_not_answer_can_still_be_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[Client] = []
    sessions = made(clients=clients)
    key = sessions.log_in("admin", "secret", "127.0.0.1")

    def silent(*asked: object, **options: object) -> None:
        raise ClusterUnreachable("nobody answers")

    monkeypatch.setattr(clients[0], "call", silent)
    assert sessions.of(key, now=True).may(Operation.ALTER)


def test_old_sessions_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "SESSIONS_MAX", 2)
    clients: list[Client] = []
    sessions = made(clients=clients)
    keys = [sessions.log_in("reader", "word", "127.0.0.1") for _ in range(3)]
    assert len({*keys}) == 3
    assert [client.is_closed for client in clients] == [True, False, False]
    sessions.close()
    assert all(client.is_closed for client in clients)


def test_a_cluster_without_users_needs_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PASSWORDS, "", "")
    monkeypatch.setitem(RIGHTS, "", {*Operation})
    sessions = made(ClientSecurity())
    assert not sessions.must_log_in
    assert isinstance(sessions.of(""), Visitor)
    assert sessions.of("").may(Operation.ALTER)


@pytest.mark.parametrize(
    "path", ["/sim", "/api/v1/about", "/nothing", "/assets/0/main.js", "/quorum/%00", "/api/v1/actions/elect"]
)
def test_every_answer_has_the_headers(path: str) -> None:
    settings = Settings(False, False, None, (), frozenset(), secure=False, runs=False)
    client = TestClient(Guard(application(None, {}, settings), settings), "http://127.0.0.1:8090", backend="trio")
    for host in ("127.0.0.1:8090", "evil.example"):
        answer = client.get(path, headers={"Host": host})
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert (answer.status_code == 403) == (host == "evil.example")


@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-site", 403), ("none", 200), ("same-origin", 200)])
def test_pages_of_other_sites_cannot_ask(site: str, status: int) -> None:
    settings = Settings(False, False, None, (), frozenset(), secure=False, runs=False)
    client = TestClient(Guard(application(None, {}, settings), settings), "http://127.0.0.1:8090", backend="trio")
    assert client.get("/api/v1/about", headers={"Sec-Fetch-Site": site}).status_code == status
    assert client.get("/quorum", headers={"Sec-Fetch-Site": site}).status_code == 200


def test_a_session_that_has_ended_is_not_known() -> None:
    sessions = made()
    key = sessions.log_in("reader", "word", "127.0.0.1")
    assert (sessions.knows(key), sessions.knows("other")) == (True, False)
    sessions.log_out(key)
    assert not sessions.knows(key)
