"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768): the client sends a signed token (JWT), which names its user.

Theory of operation. The keys of issuers are in a file (JWKS, RFC 7517), which the listener loads at start and again when it has
changed. The key decides about the algorithm, never the token; only asymmetric algorithms count. A token must have exp, iat, the
claim with the user's name, and the configured audience and issuer. A refused token is answered by a challenge, which says so in
JSON; the client answers it by one byte, and then the login fails. A token that has ended is refused, also within the clock skew,
which counts for the begin of its validity only: the session would have no time left.

Not checked: revocation. A session ends with its token.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import jwt

from .exchange import Challenge, Failure, Result, Success

REFUSAL = '{"status":"invalid_token"}'
ACKNOWLEDGEMENT = b"\1"
"""The client's answer to a refusal."""
ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"},
)
LATEST_S = 253_402_300_800
"""Year 10,000: later times are mistakes."""
_TEXT_MAX = 1000
"""Characters of names that an answer repeats."""
_MESSAGE = re.compile(
    rb"n,(?:a=(?P<authorization_id>(?:[^\x80-\xff\0=,]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]+\x01)*)\x01"
)
_BEARER = re.compile(rb"bearer +(?P<token>[-_.a-zA-Z0-9]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The configuration of a listener (`sasl.oauthbearer.…`). Without `audiences` or `issuer` all are taken."""

    audiences: Sequence[str] = ()
    issuer: str | None = None
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_s: float = 30


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys by their kid, as a file had them."""

    keys: Mapping[str | None, jwt.PyJWK] = field(repr=False)
    stamp: tuple[int, int, int]

    def find(self, kid: object) -> jwt.PyJWK | None:
        """Return the key of that name. A token without a name is of the only key."""
        if kid is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        return self.keys.get(kid) if isinstance(kid, str) else None


def jwks_path(url: str) -> Path:
    """Return the path in `sasl.oauthbearer.jwks.endpoint.url`. ValueError."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise ValueError(f"{url} is not the URL of a file; save the key set and write file:///PATH")
    return Path(unquote(parts.path))


def load(path: Path) -> KeySet:
    """Read a key set. Keys that cannot check a token are left out. OSError; ValueError for other files, and without a key."""
    stamp = _stamp(path)
    try:
        document = json.loads(path.read_bytes())
        entries = [entry for entry in document["keys"] if isinstance(entry, dict)]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f'{path} is not a JSON Web Key Set; it must have {{"keys": [...]}}') from None
    keys = {entry.get("kid"): key for entry in entries if (key := _key(entry)) is not None}
    if not keys:
        raise ValueError(f"{path} has no key for {', '.join(sorted(ALGORITHMS))}; save the key set of the issuer of tokens there")
    return KeySet(keys, stamp)


def changed(path: Path, known: KeySet) -> bool:
    """Return True if the file is no longer the one that was loaded. OSError."""
    return _stamp(path) != known.stamp


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _key(entry: dict[str, Any]) -> jwt.PyJWK | None:
    """Return a key for signatures of one of ALGORITHMS, None for others."""
    if entry.get("use", "sig") != "sig" or not isinstance(entry.get("kid"), str | None):
        return None
    try:
        key = jwt.PyJWK({name: value for name, value in entry.items() if name != "d"})
    except (jwt.PyJWTError, ValueError, TypeError, LookupError):
        return None
    is_strong = key.Algorithm.check_key_length(key.key) is None
    return key if key.algorithm_name in ALGORITHMS and is_strong else None


class TokenRefused(ValueError):
    """The token is not taken. The text has the reason, and no part of the token."""


class OAuthBearer:
    """A login by a token. `keys` returns the newest key set, `now_s` the seconds since 1970."""

    def __init__(self, rules: TokenRules, keys: Callable[[], KeySet], now_s: Callable[[], float] = time.time) -> None:
        self._rules = rules
        self._keys = keys
        self._now_s = now_s
        self._refused = ""
        """The reason why the token was refused."""

    def step(self, token: bytes) -> Result:
        if self._refused:
            return Failure(REFUSAL, self._refused) if token == ACKNOWLEDGEMENT else Failure(None, self._refused)
        match = _MESSAGE.fullmatch(token)
        if match is None:
            return Failure()
        pairs = dict(pair.split(b"=", 1) for pair in match["pairs"].split(b"\1") if pair)
        bearer = _BEARER.fullmatch(pairs.get(b"auth", b""))
        if bearer is None:
            return Failure(None, "no bearer token was sent")
        try:
            name, lifetime_ms = self._user(bearer["token"].decode("ascii"))
        except TokenRefused as error:
            self._refused = str(error)
            return Challenge(REFUSAL.encode())
        authorization_id = (match["authorization_id"] or name.encode()).decode()
        if authorization_id != name:
            text = (
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different from the "
                f"token's principal name ({name})"
            )
            return Failure(text if text.isprintable() and len(text) <= _TEXT_MAX else None)
        return Success(name, lifetime_ms=lifetime_ms)

    def name_of(self, token: str) -> str:
        """Return the user of a token that came without an exchange. TokenRefused, a ValueError."""
        return self._user(token)[0]

    def _user(self, token: str) -> tuple[str, int]:
        return user_of(token, self._rules, self._keys(), self._now_s())


def user_of(token: str, rules: TokenRules, keys: KeySet, now_s: float) -> tuple[str, int]:
    """Return the token's user, and the milliseconds until the token ends. TokenRefused."""
    try:
        claims = _signed_claims(token, rules, keys)
    except TokenRefused:
        raise
    except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        # The text of an error may have parts of the token.
        raise TokenRefused(f"the token was refused ({type(error).__name__})") from None
    times = {claim: claims[claim] for claim in ("exp", "iat", "nbf") if claim in claims}
    for claim, value in times.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LATEST_S:
            raise TokenRefused(f"the claim {claim} is not a time")
    lifetime_ms = round(times["exp"] * 1000) - round(now_s * 1000)
    if lifetime_ms <= 0:
        raise TokenRefused("the token has ended")
    if times.get("nbf", 0) > now_s + rules.clock_skew_s:
        raise TokenRefused("the token is not valid yet")
    name = claims[rules.subject_claim]
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise TokenRefused(f"the claim {rules.subject_claim} is not a name")
    scopes = claims.get(rules.scope_claim, [])
    if not isinstance(scopes, str) and not (isinstance(scopes, list) and all(isinstance(scope, str) for scope in scopes)):
        raise TokenRefused(f"the claim {rules.scope_claim} has no scopes")
    return name.strip(), lifetime_ms


def _signed_claims(token: str, rules: TokenRules, keys: KeySet) -> dict[str, Any]:
    """Return the claims that the issuer has signed. TokenRefused, and errors of PyJWT."""
    key = keys.find(jwt.get_unverified_header(token).get("kid"))
    if key is None:
        raise TokenRefused("the key set has no key with the token's kid")
    return jwt.decode(
        token,
        key,
        [key.algorithm_name],
        audience=rules.audiences or None,
        issuer=rules.issuer,
        options={
            "require": ["exp", "iat", rules.subject_claim],
            "verify_aud": bool(rules.audiences),
            # `user_of` checks times, against the clock that sets the session's end.
            "verify_exp": False,
            "verify_iat": False,
            "verify_nbf": False,
        },
    )
