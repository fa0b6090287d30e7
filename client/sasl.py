"""SASL over the Kafka protocol: PLAIN, SCRAM (RFC 5802, RFC 7677) and OAUTHBEARER (RFC 7628), the client's side.

SCRAM proves the password to the broker without sending it, and the broker proves in its last message that it knows the password
too. A broker that refuses a token says why in its answer, and waits for one more message before it fails the login.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable

from .security import OAUTHBEARER, PLAIN, ClientSecurity

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MAX = 1_000_000
"""A broker may ask for no more work than this."""


class BadProof(Exception):
    """The broker's part of an authentication is wrong: it does not know the password, or is not a Kafka broker."""


def authenticate(security: ClientSecurity, exchange: Callable[[bytes], bytes]) -> None:
    """Authenticate over a connection. `exchange` sends the client's message and returns the broker's. BadProof, ConfigError."""
    if security.mechanism == PLAIN:
        exchange(b"\0" + _user(security).encode() + b"\0" + security.password.encode())
    elif security.mechanism == OAUTHBEARER:
        if exchange(f"n,,\1auth=Bearer {security.bearer()}\1\1".encode()):
            exchange(b"\1")
            raise BadProof("the broker answers a token as none should")
    else:
        scram(security, exchange, secrets.token_urlsafe(24))


def scram(security: ClientSecurity, exchange: Callable[[bytes], bytes], nonce: str) -> None:
    """Authenticate by SCRAM with this nonce, which must be random. BadProof."""
    name = _user(security).replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}"
    server_first = exchange(f"n,,{client_first}".encode()).decode(errors="replace")
    try:
        given = dict(part.split("=", 1) for part in server_first.split(","))
        salt, iterations, joined = base64.b64decode(given["s"]), int(given["i"]), given["r"]
    except (KeyError, ValueError):
        raise BadProof("the broker's first SCRAM message is malformed") from None
    if not joined.startswith(nonce) or joined == nonce or not 1 <= iterations <= ITERATIONS_MAX:
        raise BadProof("the broker's first SCRAM message does not fit the client's")
    digest = _HASHES[security.mechanism]
    salted = hashlib.pbkdf2_hmac(digest, security.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    client_final = f"c=biws,r={joined}"
    signed = f"{client_first},{server_first},{client_final}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(mine ^ theirs for mine, theirs in zip(client_key, signature, strict=True))
    server_final = exchange(f"{client_final},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if server_final.split(",")[0] != f"v={base64.b64encode(expected).decode()}":
        raise BadProof("the broker does not know the user's password; is this the right cluster?")


def _user(security: ClientSecurity) -> str:
    assert security.user is not None, "these mechanisms have a user"
    return security.user
