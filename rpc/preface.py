"""How an HTTP/2 connection begins, and what else comes to a port that expects one. Pure: bytes in, verdict out."""

from __future__ import annotations

import re

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of every HTTP/2 client (RFC 9113, 3.4)."""

SHOWN_BYTES = 32

_HTTP_1 = re.compile(rb"(CONNECT|DELETE|GET|HEAD|OPTIONS|PATCH|POST|PUT|TRACE) ")
_TLS_HANDSHAKE = re.compile(rb"\x16\x03[\x00-\x04]")


def is_preface(first: bytes) -> bool:
    """Whether a connection that begins so is HTTP/2."""
    return first.startswith(PREFACE)


def may_become_preface(first: bytes) -> bool:
    """Whether these bytes, fewer than the preface has, are its beginning."""
    return PREFACE.startswith(first)


def is_http_1(first: bytes) -> bool:
    return _HTTP_1.match(first) is not None


def describe(first: bytes) -> str:
    """What a connection that is not HTTP/2 began with, for a person. `first` is not empty."""
    shown = repr(first[:SHOWN_BYTES]) + ("…" if len(first) > SHOWN_BYTES else "")
    if is_http_1(first):
        return f"an HTTP/1 request: {shown}"
    if _TLS_HANDSHAKE.match(first):
        return f"a TLS handshake: {shown}"
    if is_preface(first):
        return "HTTP/2"
    if may_become_preface(first):
        return f"only the beginning of HTTP/2: {shown}"
    return f"what is not HTTP/2: {shown}"
