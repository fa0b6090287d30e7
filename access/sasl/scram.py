"""SCRAM-SHA-256 and SCRAM-SHA-512 on the server's side (RFC 5802, RFC 7677, KIP-84), with Kafka's credentials.

Theory of operation. The client's first message names its user; the answer has the salt and the number of iterations of the user's
credential. The client's last message proves that it knows the password: its proof is ClientKey XOR HMAC(StoredKey, all messages),
and the hash of ClientKey is StoredKey. The answer proves that the server knows ServerKey. Two HMACs and a hash are all the work:
the password is salted (PBKDF2) by the client.

Every failure has one text. An unknown user gets a salt too, always the same one, and fails at the last message as with a wrong
password: neither the number of messages nor the time tells the two apart. `secret` makes these salts; it must stay the same over
restarts, and on all nodes.

Messages are those that Apache Kafka takes: names are ASCII and not normalized, extensions are part of the proof and mean nothing.
Channel binding is not offered: the client must say so (`n`) and repeat that in its last message. A delegation token
(tokenauth=true) is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kraftlab.metadata.scram import ScramCredential, ScramMechanism

from .exchange import Challenge, Failure, NotLoaded, Result, Success, Unavailable
from .plain import OTHER_AUTHORIZATION_ID

HASHES: Mapping[ScramMechanism, str] = {
    ScramMechanism.SCRAM_SHA_256: "sha256",
    ScramMechanism.SCRAM_SHA_512: "sha512",
}
"""Name of the hash function in hashlib."""
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
MOCK_SALT_BYTES = 20

Lookup = Callable[[str, ScramMechanism], ScramCredential | None]
"""Returns a user's credential. NotLoaded if this node does not know the users yet."""

_NAME = rb"(?:[^\x80-\xff\0=,]|=2C|=3D)+"
_VALUE = rb"[^\x80-\xff\0,]+"
_NONCE = rb"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = rb"(?P<extensions>(?:,[A-Za-z]+=%b)*)" % _VALUE
_FIRST = re.compile(
    rb"(?P<header>n,(?:a=(?P<authorization_id>%b))?,)(?P<bare>(?P<reserved>m=%b,)?n=(?P<name>%b),r=(?P<nonce>%b)%b)"
    % (_NAME, _VALUE, _NAME, _NONCE, _EXTENSIONS)
)
_LAST = re.compile(rb"(?P<signed>c=(?P<binding>[^,]*),r=(?P<nonce>%b))%b,p=(?P<proof>[^,]+)" % (_NONCE, _EXTENSIONS))
_TOKEN_AUTHENTICATION = re.compile(rb",tokenauth=true(?:,|\Z)", re.IGNORECASE)


class _Begun(NamedTuple):
    """A login after the first message. `may_succeed`: False for an unknown user."""

    name: str
    credential: ScramCredential
    may_succeed: bool
    binding: bytes
    nonce: bytes
    signed: bytes
    """The first message of the client and that of the server."""


class Scram:
    """A login by one of the two mechanisms."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential_of: Lookup,
        secret: bytes,
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        self._mechanism, self._hash = mechanism, HASHES[mechanism]
        self._credential_of = credential_of
        self._secret = secret
        self._new_nonce = new_nonce
        self._begun: _Begun | None = None

    def step(self, token: bytes) -> Result:
        if self._begun is None:
            return self._first(token)
        begun, self._begun = self._begun, None
        return self._last(token, begun)

    def _first(self, token: bytes) -> Result:
        match = _FIRST.fullmatch(token)
        if match is None or _TOKEN_AUTHENTICATION.search(match["extensions"]):
            return Failure()
        name = _unescaped(match["name"])
        if match["authorization_id"] is not None and _unescaped(match["authorization_id"]) != name:
            return Failure(OTHER_AUTHORIZATION_ID)
        try:
            known = self._credential_of(name, self._mechanism)
        except NotLoaded:
            return Unavailable("this node has not loaded its metadata yet, which has the SCRAM credentials")
        mock = self._mock(name)  # also for a known user, who else would be answered faster
        credential = mock if known is None else known
        nonce = match["nonce"] + self._new_nonce().encode()
        answer = b"r=%b,s=%b,i=%d" % (nonce, base64.b64encode(credential.salt), credential.iterations)
        self._begun = _Begun(
            name,
            credential,
            known is not None and match["reserved"] is None,
            base64.b64encode(match["header"]),
            nonce,
            b"%b,%b" % (match["bare"], answer),
        )
        return Challenge(answer)

    def _last(self, token: bytes, begun: _Begun) -> Result:
        match = _LAST.fullmatch(token)
        if match is None:
            return Failure()
        if match["nonce"] != begun.nonce:
            is_doubled = match["nonce"].endswith(begun.nonce)
            return Failure(None, "the client's nonce is doubled, as by librdkafka before 2.6.1" if is_doubled else "")
        if match["binding"] != begun.binding:
            return Failure()
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            return Failure()
        # Extensions of this message are not signed, as in Apache Kafka: a client that sends some fails.
        signed = b"%b,%b" % (begun.signed, match["signed"])
        signature = hmac.digest(begun.credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            return Failure()
        client_key = bytes(mine ^ theirs for mine, theirs in zip(signature, proof, strict=True))
        is_right = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), begun.credential.stored_key)
        if not (is_right and begun.may_succeed):
            return Failure()
        answer = hmac.digest(begun.credential.server_key, signed, self._hash)
        return Success(begun.name, b"v=" + base64.b64encode(answer))

    def _mock(self, name: str) -> ScramCredential:
        """Return the credential that an unknown user seems to have."""
        seed = hmac.digest(self._secret, f"{self._mechanism.name}\0{name}".encode(), self._hash)
        return ScramCredential(seed[:MOCK_SALT_BYTES], seed, seed, ITERATIONS_MIN)


def keys(hash_name: str, salted_password: bytes) -> tuple[bytes, bytes]:
    """(StoredKey, ServerKey) of RFC 5802, section 3."""
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    return hashlib.new(hash_name, client_key).digest(), hmac.digest(salted_password, b"Server Key", hash_name)


def password_fits(credential: ScramCredential, mechanism: ScramMechanism, password: str) -> bool:
    """Return True if the credential is of this password, for listeners that get the password itself. Takes about 5 ms of a
    processor for 4,096 iterations: call it on a thread.
    """
    hash_name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), credential.salt, credential.iterations)
    return hmac.compare_digest(keys(hash_name, salted)[0], credential.stored_key)


def _unescaped(name: bytes) -> str:
    return name.decode("ascii").replace("=2C", ",").replace("=3D", "=")
