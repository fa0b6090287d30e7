"""Logins of gRPC callers: the principal that a call's metadata or the connection's certificate proves.

A listener has one kind of login. On SSL it is the certificate (`CertificateLogin`), on SASL_SSL a user and a password, or a token
(`SaslLogin`). PLAINTEXT has users from the node's own file (`UserLogin`). Checking a password takes milliseconds of a processor,
so it runs in a thread, and a proof that was right counts again for a while without that work.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kraftlab.metadata.scram import ScramCredential, ScramMechanism

from .sasl.exchange import NotLoaded
from .sasl.scram import Lookup, password_fits
from .users import ANONYMOUS, PASSWORD_HEADER, PRINCIPAL_TYPE, USER_HEADER, AuthenticationFailed, Users

TOKEN_HEADER = "authorization"
CREDENTIAL_HEADERS = (USER_HEADER, PASSWORD_HEADER, TOKEN_HEADER)
_BEARER = "bearer "
FAILURE_DELAY_S = 0.1
PROOF_S = 60.0
"""Time for which a right password counts without being salted again."""
PROOFS_MAX = 1000
WRONG = f"the user is unknown here, or the password is wrong; check {USER_HEADER} and {PASSWORD_HEADER}"


class Login(Protocol):
    """Proves who calls. AuthenticationFailed has a text for the caller."""

    async def principal(self, headers: Mapping[str, str], certificate: bytes | None, /) -> str:
        """Return the principal of a call with this metadata over a connection with this certificate (DER)."""
        ...


class UserLogin:
    """The user and password of the metadata; ANONYMOUS without them."""

    def __init__(self, users: Users) -> None:
        self._users = users

    async def principal(self, headers: Mapping[str, str], certificate: bytes | None, /) -> str:
        return self._users.principal(headers.get(USER_HEADER), headers.get(PASSWORD_HEADER))


class CertificateLogin:
    """The name in the certificate, as `principal_of` (DER) maps it; ANONYMOUS without one. A ValueError refuses the call."""

    def __init__(self, principal_of: Callable[[bytes], str]) -> None:
        self._principal_of = principal_of

    async def principal(self, headers: Mapping[str, str], certificate: bytes | None, /) -> str:
        if USER_HEADER in headers or TOKEN_HEADER in headers:
            raise AuthenticationFailed("this listener knows callers by their certificate; leave user, password and token out")
        if certificate is None:
            return ANONYMOUS
        try:
            return self._principal_of(certificate)
        except ValueError as error:
            raise AuthenticationFailed(f"the certificate names nobody: {error}") from error


class SaslLogin:
    """A user with a password, of PLAIN or SCRAM, or a bearer token. `name_of_token` checks one; a ValueError refuses it."""

    def __init__(
        self,
        passwords: Mapping[str, str],
        mechanisms: Sequence[ScramMechanism] = (),
        credential_of: Lookup = lambda name, mechanism: None,
        name_of_token: Callable[[str], str] | None = None,
    ) -> None:
        self._passwords = {name: password.encode() for name, password in passwords.items()}
        self._mechanisms = mechanisms
        self._credential_of = credential_of
        self._name_of_token = name_of_token
        self._key = secrets.token_bytes(32)
        self.proofs: dict[bytes, float] = {}
        """Time until which a right password counts, by a digest of it, the user and the credential. The oldest is first."""

    async def principal(self, headers: Mapping[str, str], certificate: bytes | None, /) -> str:
        name, password, token = (headers.get(key) for key in (USER_HEADER, PASSWORD_HEADER, TOKEN_HEADER))
        if token is not None:
            return f"{PRINCIPAL_TYPE}:{await self._checked_token(token)}"
        if name is None or password is None:
            raise AuthenticationFailed(f"this listener needs a login; send {USER_HEADER} and {PASSWORD_HEADER}")
        try:
            is_right = await self._is_right(name, password)
        except NotLoaded as error:
            raise AuthenticationFailed("this node has not loaded its metadata yet, which has the users; try again") from error
        if not is_right:
            await asyncio.sleep(FAILURE_DELAY_S)
            raise AuthenticationFailed(WRONG)
        return f"{PRINCIPAL_TYPE}:{name}"

    async def _checked_token(self, header: str) -> str:
        if self._name_of_token is None or header[: len(_BEARER)].lower() != _BEARER:
            raise AuthenticationFailed(f"this listener takes no such token; send {USER_HEADER} and {PASSWORD_HEADER}")
        try:
            return self._name_of_token(header[len(_BEARER) :])
        except ValueError as error:
            await asyncio.sleep(FAILURE_DELAY_S)
            raise AuthenticationFailed("the token is not valid here; get a new one") from error

    async def _is_right(self, name: str, password: str) -> bool:
        """Return True if the password is right. An unknown user costs as much time as a wrong password."""
        expected = self._passwords.get(name, b"")
        if hmac.compare_digest(password.encode(), expected) and expected:
            return True
        credentials = [(mechanism, self._credential_of(name, mechanism)) for mechanism in self._mechanisms]
        for mechanism, credential in credentials:
            digest = self._digest(name, password, credential)
            if credential is not None and self.proofs.get(digest, 0.0) > time.monotonic():
                return True
            fits = await asyncio.to_thread(password_fits, credential or _NOBODY, mechanism, password)
            if fits and credential is not None:
                self._keep(digest)
                return True
        return False

    def _digest(self, name: str, password: str, credential: ScramCredential | None) -> bytes:
        stored_key = b"" if credential is None else credential.stored_key
        parts = (name.encode(), password.encode(), stored_key)
        return hmac.digest(self._key, b"".join(len(part).to_bytes(4) + part for part in parts), "sha256")

    def _keep(self, digest: bytes) -> None:
        self.proofs.pop(digest, None)
        self.proofs[digest] = time.monotonic() + PROOF_S
        if len(self.proofs) > PROOFS_MAX:
            del self.proofs[next(iter(self.proofs))]


_NOBODY = ScramCredential(bytes(20), hashlib.sha256(b"nobody").digest(), b"", 4096)
"""Credential of users that have none."""
