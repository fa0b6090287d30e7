"""States of a connection: all short sequences of requests against a table, sessions, and the bytes of answers."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftlab.access.entrance import SaslSettings
from kraftlab.access.sasl.exchange import Challenge, Exchange, Failure, Result, Success, Unavailable
from kraftlab.access.sasl.plain import INVALID, Plain
from kraftlab.gateway.authenticator import Action, Answer, Authenticator, ConnectionEnd, Serve
from kraftlab.messages.catalog import response_class
from kraftlab.messages.reading import read
from kraftlab.wire.parts import joined

PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}
ALICE, WRONG, BOB = b"\0alice\0alice-secret", b"\0alice\0wrong", b"\0bob\0bob-secret"
HANDSHAKE, API_VERSIONS, AUTHENTICATE, METADATA, DESCRIBE_CLUSTER = 17, 18, 36, 3, 60
ANONYMOUS, ALICES = Serve("User:ANONYMOUS"), Serve("User:alice")


def request(key: int, version: int, body: bytes, flexible: bool = False) -> bytes:
    return struct.pack(">hhih", key, version, 7, 3) + b"rec" + bytes(flexible) + body


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return request(HANDSHAKE, version, struct.pack(">h", len(mechanism)) + mechanism.encode())


def authenticate(token: bytes, version: int = 1) -> bytes:
    return request(AUTHENTICATE, version, struct.pack(">i", len(token)) + token)


def api_versions(version: int = 3, name: str = "rec") -> bytes:
    return request(API_VERSIONS, version, bytes([len(name) + 1]) + name.encode() + b"\x02\x31\0", flexible=True)


METADATA_REQUEST = request(METADATA, 12, b"\x01\0\0\0", flexible=True)
DESCRIBE_REQUEST = request(DESCRIBE_CLUSTER, 0, b"\0\0", flexible=True)


def decoded(parts: Sequence[Any], key: int, version: int) -> Any:
    """Return the answer to request 7 as a message."""
    frame = b"".join(bytes(part) for part in joined(parts))
    assert struct.unpack(">ii", frame[:8]) == (len(frame) - 4, 7)
    kind = response_class(key)
    body, at = read(kind, version, frame, 8 + (version >= kind.FLEXIBLE and key != API_VERSIONS))
    assert at == len(frame)
    return body


def plain_listener(max_reauth_ms: int = 0, mechanisms: Mapping[str, Any] | None = None) -> Authenticator:
    known = {"PLAIN": lambda: Plain(PASSWORDS)} if mechanisms is None else mechanisms
    return Authenticator(SaslSettings(known, dict.fromkeys(known, max_reauth_ms)))


FRAMES = {
    "A": api_versions(),
    "a": api_versions(99),
    "n": api_versions(name="-"),
    "H": handshake(),
    "h": handshake(version=0),
    "x": handshake("GSSAPI"),
    "9": handshake(version=9),
    "S": authenticate(ALICE),
    "w": authenticate(WRONG),
    "s": authenticate(ALICE, 9),
    "M": METADATA_REQUEST,
    "r": ALICE,
    "z": b"",
}
CLOSE, DELAYED, REFUSED, ANSWER = "closed at once", "closed after the delay", "answered and closed after the delay", "answered"
HANDSHAKES: dict[str, object] = {"H": ANSWER, "h": ANSWER, "x": REFUSED}
IN_REQUESTS: dict[str, object] = {"S": ANSWER, **dict.fromkeys("wAanHhxM", REFUSED)}
IN_TOKENS: dict[str, object] = {"r": ANSWER, **dict.fromkeys("AanHhx9SwsMz", DELAYED)}
SERVED: dict[str, object] = {**dict.fromkeys("AanMr", ALICES), **dict.fromkeys("HhxSw", ANSWER)}
FIRST_LOGIN = {
    "[an]*": HANDSHAKES | dict.fromkeys("Aan", ANONYMOUS),
    "[an]*A": HANDSHAKES,
    "[an]*A?H": IN_REQUESTS,
    "[an]*A?h": IN_TOKENS,
}
"""Everything that was sent → the next request → what happens. What is not here closes the connection at once."""
LOGGED_IN = "[an]*A?(HS|hr)"
SECOND_LOGIN = {
    f"{LOGGED_IN}[AanMrSw]*": SERVED | HANDSHAKES,
    f"{LOGGED_IN}[AanMrSw]*H": IN_REQUESTS,
    f"{LOGGED_IN}[AanMrSw]*h": IN_TOKENS,
}


def seen(action: Action) -> object:
    match action:
        case Serve():
            return action
        case Answer():
            return ANSWER
        case ConnectionEnd(_, failed, parts):
            return (REFUSED if parts else DELAYED) if failed else CLOSE


@pytest.mark.parametrize(("max_reauth_ms", "second_login"), [(0, {}), (5000, SECOND_LOGIN)])
def test_every_short_sequence_of_requests_is_answered_as_the_table_says(max_reauth_ms: int, second_login: Any) -> None:
    model = FIRST_LOGIN | second_login | {f"{LOGGED_IN}.*": SERVED}
    for length in range(1, 5):
        for *before, last in itertools.product(FRAMES, repeat=length):
            connection = plain_listener(max_reauth_ms)
            if any(isinstance(connection.receive(FRAMES[letter], 0), ConnectionEnd) for letter in before):
                continue
            sent = "".join(before)
            row = next(rows for pattern, rows in model.items() if re.fullmatch(pattern, sent))
            assert seen(connection.receive(FRAMES[last], 0)) == row.get(last, CLOSE), (sent, last)


def test_a_connection_that_ended_stays_ended() -> None:
    connection = plain_listener()
    assert isinstance(connection.receive(METADATA_REQUEST, 0), ConnectionEnd)
    assert connection.receive(handshake(), 0) == ConnectionEnd("the connection is over")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_has_an_empty_text_and_no_lifetime(version: int) -> None:
    connection = plain_listener()
    connection.receive(handshake(), 0)
    frame = request(AUTHENTICATE, 2, bytes([len(ALICE) + 1]) + ALICE + b"\0", flexible=True)
    answer = connection.receive(frame if version == 2 else authenticate(ALICE, version), 0)
    assert isinstance(answer, Answer)
    said = decoded(answer.parts, AUTHENTICATE, version)
    assert (said.error_code, said.error_message, said.auth_bytes, said.session_lifetime_ms) == (0, "", b"", 0)


def ending(connection: Authenticator, frame: bytes, key: int, version: int, now_s: float = 0) -> Any:
    """Return the answer with which a failed login ends."""
    action = connection.receive(frame, now_s)
    assert isinstance(action, ConnectionEnd)
    assert action.failed
    return decoded(action.parts, key, version)


def test_a_request_within_a_login_is_refused_in_its_own_schema() -> None:
    def begun() -> Authenticator:
        connection = plain_listener()
        connection.receive(handshake(), 0)
        return connection

    text = "Unexpected Kafka request of type DESCRIBE_CLUSTER during SASL authentication."
    refused = ending(begun(), DESCRIBE_REQUEST, DESCRIBE_CLUSTER, 0)
    assert (refused.error_code, refused.error_message, refused.controller_id) == (34, text, -1)
    assert ending(begun(), METADATA_REQUEST, METADATA, 12).topics == ()
    assert ending(begun(), api_versions(), API_VERSIONS, 3).error_code == 34
    assert ending(begun(), api_versions(99), API_VERSIONS, 0).error_code == 34
    refused = ending(begun(), handshake(), HANDSHAKE, 1)
    assert (refused.error_code, refused.mechanisms) == (34, ())


@pytest.mark.parametrize("size", [-1, 524_289, 369_295_618])
def test_a_bad_size_ends_the_login_after_the_delay(size: int) -> None:
    connection = plain_listener()
    assert connection.frame_bytes_max == 524_288
    assert connection.bad_size(size) == ConnectionEnd(f"a frame has {size} bytes, expected at most 524288", failed=True)
    assert isinstance(connection.receive(handshake(), 0), ConnectionEnd)


def test_sizes_are_those_of_all_requests_after_the_login() -> None:
    connection = logged_in(plain_listener(5000))
    assert connection.frame_bytes_max is None
    connection.receive(handshake(), 0)
    assert connection.frame_bytes_max == 524_288


@pytest.mark.parametrize("principal", ["User:ANONYMOUS", "User:CN=alice"])
def test_a_listener_without_sasl_serves_from_the_start(principal: str) -> None:
    connection = Authenticator(None, principal)
    assert connection.is_authenticated
    for frame, key in ((handshake(), HANDSHAKE), (authenticate(ALICE), AUTHENTICATE)):
        answer = connection.receive(frame, 0)
        assert isinstance(answer, Answer)
        assert decoded(answer.parts, key, 1).error_code == 34
    assert connection.receive(METADATA_REQUEST, 1e9) == Serve(principal)


def logged_in(connection: Authenticator, now_s: float = 0, token: bytes = ALICE) -> Authenticator:
    connection.receive(handshake(), now_s)
    connection.receive(authenticate(token), now_s)
    assert connection.receive(METADATA_REQUEST, now_s) == Serve(f"User:{token.split(bytes(1))[1].decode()}")
    return connection


def test_a_session_ends_at_the_first_request_after_its_lifetime() -> None:
    connection = logged_in(plain_listener(5000))
    assert connection.receive(METADATA_REQUEST, 5) == ALICES
    action = connection.receive(api_versions(), 5.001)
    assert isinstance(action, ConnectionEnd)
    assert not action.failed


def test_a_client_authenticates_again_also_after_the_end_of_its_session() -> None:
    connection = logged_in(plain_listener(5000))
    assert connection.is_authenticated
    logged_in(connection, 1_000)
    assert connection.receive(METADATA_REQUEST, 1_005) == ALICES


def test_a_client_authenticates_again_at_most_once_a_second() -> None:
    connection = logged_in(logged_in(plain_listener(5000)), 0)
    answer = connection.receive(handshake(), 0.9)
    assert isinstance(answer, Answer)
    assert decoded(answer.parts, HANDSHAKE, 1).error_code == 34
    assert connection.receive(METADATA_REQUEST, 0.9) == ALICES
    logged_in(connection, 1)


def test_a_login_without_the_header_has_a_session_too() -> None:
    connection = plain_listener(5000)
    connection.receive(handshake(version=0), 0)
    answer = connection.receive(ALICE, 0)
    assert isinstance(answer, Answer)
    assert b"".join(bytes(part) for part in answer.parts) == bytes(4)
    assert connection.receive(METADATA_REQUEST, 5) == ALICES
    assert isinstance(connection.receive(METADATA_REQUEST, 6), ConnectionEnd)


MORE: dict[str, Any] = {"PLAIN": lambda: Plain(PASSWORDS), "SCRAM-SHA-256": lambda: Script(Success("alice"))}


class Script:
    """An exchange with one result."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def step(self, token: bytes) -> Result:
        return self._result


@pytest.mark.parametrize(
    ("mechanism", "token", "text"),
    [
        (
            "SCRAM-SHA-256",
            ALICE,
            "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism 'PLAIN'",
        ),
        ("PLAIN", BOB, "Cannot change principals during re-authentication from User.alice: User.bob"),
        ("PLAIN", WRONG, INVALID),
    ],
)
def test_a_failed_second_login_is_answered(mechanism: str, token: bytes, text: str) -> None:
    connection = logged_in(plain_listener(5000, MORE))
    assert isinstance(connection.receive(handshake(mechanism), 1), Answer)
    refused = ending(connection, authenticate(token), AUTHENTICATE, 1, 1)
    assert (refused.error_code, refused.error_message) == (58, text)


def test_an_unknown_mechanism_in_a_second_login_is_answered() -> None:
    refused = ending(logged_in(plain_listener(5000, MORE)), handshake("GSSAPI"), HANDSHAKE, 1, 1)
    assert (refused.error_code, refused.mechanisms) == (58, ("PLAIN", "SCRAM-SHA-256"))


def test_the_credential_may_end_before_the_session() -> None:
    lifetimes = {(0, None): 0, (5000, None): 5000, (0, 700): 700, (5000, 700): 700, (5000, 9000): 5000}
    for (max_reauth_ms, lifetime_ms), expected in lifetimes.items():
        result = Success("alice", lifetime_ms=lifetime_ms)
        connection = plain_listener(max_reauth_ms, {"OAUTHBEARER": lambda result=result: Script(result)})
        connection.receive(handshake("OAUTHBEARER"), 0)
        answer = connection.receive(authenticate(b"x"), 0)
        assert isinstance(answer, Answer)
        assert decoded(answer.parts, AUTHENTICATE, 1).session_lifetime_ms == expected
        assert isinstance(connection.receive(METADATA_REQUEST, expected / 1000 + 1), ConnectionEnd if expected else Serve)


def test_results_of_the_mechanism_are_answers() -> None:
    def ended(exchange: Exchange) -> Action:
        connection = plain_listener(0, {"X": lambda: exchange})
        connection.receive(handshake("X"), 0)
        return connection.receive(authenticate(b"x"), 0)

    challenge = ended(Script(Challenge(b"salt")))
    assert isinstance(challenge, Answer)
    assert decoded(challenge.parts, AUTHENTICATE, 1).auth_bytes == b"salt"
    failure = ended(Script(Failure()))
    assert isinstance(failure, ConnectionEnd)
    text = "Authentication failed during authentication due to invalid credentials with SASL mechanism X"
    assert decoded(failure.parts, AUTHENTICATE, 1).error_message == text
    assert ended(Script(Unavailable("no metadata yet"))) == ConnectionEnd("no metadata yet")


def test_secrets_are_not_printed() -> None:
    connection = plain_listener()
    printed = [repr(connection.receive(handshake(), 0)), repr(connection.receive(authenticate(ALICE), 0)), repr(connection)]
    assert not any("secret" in text for text in [*printed, repr(Challenge(b"secret")), repr(Success("alice", b"secret"))])


@st.composite
def damaged_frames(draw: st.DrawFn) -> bytes:
    """Return one of the requests above, cut off or with other bytes, or any bytes."""
    frame = bytearray(draw(st.sampled_from(list(FRAMES.values())) | st.binary(max_size=40)))
    for at in draw(st.lists(st.integers(0, max(len(frame) - 1, 0)), max_size=3)) if frame else ():
        frame[at] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.integers(0, len(frame)))] if draw(st.booleans()) else frame)


@given(st.lists(damaged_frames(), max_size=4), st.sampled_from([0, 5000]))
@example([request(HANDSHAKE, 1, b"\xff\xff")], 0)
@example([request(HANDSHAKE, 1, b"\0\1\xff")], 0)
@example([handshake(), request(AUTHENTICATE, 1, b"\xff\xff\xff\xff")], 0)
@example([handshake(), request(AUTHENTICATE, 1, b"\x7f\xff\xff\xff")], 0)
@example([handshake(), request(0, 0, b"")], 0)
@example([handshake(), request(-1, 0, b"")], 0)
def test_any_frames_lead_to_actions(frames: list[bytes], max_reauth_ms: int) -> None:
    connection = plain_listener(max_reauth_ms)
    for frame in frames:
        action = connection.receive(frame, 0)
        if isinstance(action, Answer | ConnectionEnd):
            b"".join(bytes(part) for part in joined(action.parts))
