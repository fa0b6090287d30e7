from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.rpc.preface import PREFACE, describe, is_http_1, is_preface, may_become_preface


@given(st.binary())
def test_whatever_follows_the_preface_it_is_http_2(rest: bytes) -> None:
    assert is_preface(PREFACE + rest)


@given(st.integers(0, len(PREFACE) - 1))
def test_a_part_of_the_preface_is_not_enough_yet(length: int) -> None:
    first = PREFACE[:length]
    assert not is_preface(first)
    assert may_become_preface(first)


@given(st.integers(0, len(PREFACE) - 1), st.integers(0, 255), st.binary())
def test_one_wrong_byte_is_enough_to_know(at: int, wrong: int, rest: bytes) -> None:
    first = PREFACE[:at] + bytes([wrong]) + rest
    if wrong != PREFACE[at]:
        assert not is_preface(first)
        assert not may_become_preface(first)


@pytest.mark.parametrize(
    ("first", "description"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", r"an HTTP/1 request: b'GET / HTTP/1.1\r\nHost: a\r\n\r\n'"),
        (b"\x16\x03\x01\x02\x00\x01", r"a TLS handshake: b'\x16\x03\x01\x02\x00\x01'"),
        (b"PRI * HTTP/2", "only the beginning of HTTP/2: b'PRI * HTTP/2'"),
        (PREFACE + b"\0\0\0", "HTTP/2"),
        (b"\xff" * 100, "what is not HTTP/2: " + repr(b"\xff" * 32) + "…"),
    ],
)
def test_what_came_is_described_in_one_short_line(first: bytes, description: str) -> None:
    assert describe(first) == description


@given(st.binary(min_size=1))
def test_any_bytes_have_a_description_of_one_line(first: bytes) -> None:
    assert describe(first).isprintable()
    assert len(describe(first)) < 200


@pytest.mark.parametrize(("first", "is_it"), [(b"POST /x HTTP/1.0\r\n", True), (b"PRI * HTTP/2.0\r\n", False), (b"GETTY", False)])
def test_http_1_is_known_by_its_method(first: bytes, is_it: bool) -> None:
    assert is_http_1(first) is is_it
