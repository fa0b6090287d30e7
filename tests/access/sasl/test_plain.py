"""PLAIN: names and passwords."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.access.sasl.exchange import Failure, Success
from kraftlab.access.sasl.mechanisms import check_max_reauth_ms, check_mechanisms
from kraftlab.access.sasl.plain import INVALID, OTHER_AUTHORIZATION_ID, Plain

PASSWORDS = {"alice": "alice-secret", "jürgen": "über", "bob": "b"}


@pytest.mark.parametrize("token", ["\0alice\0alice-secret", "alice\0alice\0alice-secret"])
def test_the_right_password_logs_in(token: str) -> None:
    assert Plain(PASSWORDS).step(token.encode()) == Success("alice")


def test_names_and_passwords_are_utf_8() -> None:
    assert Plain(PASSWORDS).step("\0jürgen\0über".encode()) == Success("jürgen")


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0wrong", INVALID),
        (b"\0alice\0alice-secret\n", INVALID),
        (b"\0nobody\0alice-secret", INVALID),
        (b"\0alice\0\xff", INVALID),
        (b"\0\xff\0alice-secret", INVALID),
        (b"admin\0alice\0wrong", INVALID),
        (b"admin\0alice\0alice-secret", OTHER_AUTHORIZATION_ID),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (b"\0\0", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0alice-secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0alice-secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0\0\0\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_refusals_have_kafkas_texts(token: bytes, text: str) -> None:
    assert Plain(PASSWORDS).step(token) == Failure(text)


@given(st.binary() | st.lists(st.sampled_from([b"\0", b"alice", b"alice-secret", b"\xff"])).map(b"".join))
def test_any_token_has_a_result(token: bytes) -> None:
    result = Plain(PASSWORDS).step(token)
    logs_in = token in (b"\0alice\0alice-secret", b"alice\0alice\0alice-secret")
    assert result == Success("alice") if logs_in else isinstance(result, Failure)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ([], "no mechanism is enabled"),
        (["GSSAPI"], "GSSAPI: Kerberos is not served"),
        (["PLAIN", "SCRAM-SHA-1"], "SCRAM-SHA-1: SHA-1 is broken"),
        (["plain"], "plain: there is no such mechanism"),
    ],
)
def test_other_mechanisms_are_refused_by_name(names: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=f"{reason}.*PLAIN, SCRAM-SHA-256"):
        check_mechanisms(names)
    check_mechanisms(["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])


@pytest.mark.parametrize("value_ms", [-1, 1, 4999])
def test_sessions_are_endless_or_last_five_seconds(value_ms: int) -> None:
    with pytest.raises(ValueError, match=f"{value_ms} is too short"):
        check_max_reauth_ms(value_ms)
    check_max_reauth_ms(0)
    check_max_reauth_ms(5000)
