"""OAUTHBEARER: tokens that are taken and refused, key sets, and the second step of a refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.access.sasl.exchange import Challenge, Failure, Result, Success
from kraftlab.access.sasl.oauthbearer import REFUSAL, KeySet, OAuthBearer, TokenRefused, TokenRules, changed, jwks_path, load

NOW_S = 1_795_844_522.5
RULES = TokenRules(("kafka", "other-name"), "https://issuer.test")
CLAIMS = {"sub": "carol", "iss": "https://issuer.test", "aud": "kafka", "iat": NOW_S - 1, "exp": NOW_S + 600, "scope": "x y"}
REFUSED = Challenge(REFUSAL.encode())
P_256, ED_25519 = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
RSA, OTHERS_RSA, WEAK_RSA = (rsa.generate_private_key(65537, bits) for bits in (2048, 2048, 1024))
SHARED = b"a key that both sides know, which is no proof of anything"


def public(algorithm: str, key: Any, **more: str) -> dict[str, Any]:
    return {**jwt.get_algorithm_by_name(algorithm).to_jwk(key, as_dict=True), **more}


ENTRIES = [
    public("RS256", RSA.public_key(), kid="rsa"),
    public("PS512", RSA.public_key(), kid="pss", alg="PS512"),
    public("ES256", P_256.public_key(), kid="ec"),
    public("EdDSA", ED_25519.public_key(), kid="ed", use="sig"),
    public("RS256", WEAK_RSA.public_key(), kid="weak"),
    public("HS256", SHARED, kid="shared"),
    public("RS256", OTHERS_RSA.public_key(), kid="encryption", use="enc"),
]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeySet:
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_text(json.dumps({"keys": [*ENTRIES, {"kty": "new"}, {}, 7, None]}))
    return load(path)


def token(key: Any = P_256, algorithm: str = "ES256", kid: str | None = "ec", **claims: Any) -> str:
    """Return a token of carol, with other claims; a claim that is ... is left out."""
    content = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not ...}
    return jwt.PyJWS().encode(json.dumps(content).encode(), key, algorithm, headers={} if kid is None else {"kid": kid})


def login(keys: KeySet, message: str, rules: TokenRules = RULES) -> tuple[OAuthBearer, Result]:
    exchange = OAuthBearer(rules, lambda: keys, lambda: NOW_S)
    return exchange, exchange.step(message.encode())


def sent(keys: KeySet, *, rules: TokenRules = RULES, **claims: Any) -> Result:
    return login(keys, f"n,,\1auth=Bearer {token(**claims)}\1\1", rules)[1]


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA, "RS256", "rsa"), (RSA, "PS512", "pss"), (P_256, "ES256", "ec"), (ED_25519, "EdDSA", "ed")],
)
def test_a_token_is_signed_by_the_algorithm_of_its_key(keys: KeySet, key: Any, algorithm: str, kid: str) -> None:
    assert sent(keys, key=key, algorithm=algorithm, kid=kid) == Success("carol", lifetime_ms=600_000)


@pytest.mark.parametrize(
    "message",
    [
        "n,,\1auth=Bearer {}\1\1",
        "n,,\1auth=bEARER   {}\1\1",
        "n,a=carol,\1auth=Bearer {}\1\1",
        "n,,\1host=x\1auth=Bearer {}\1port=1\1\1",
    ],
)
def test_the_message_may_have_a_name_and_other_pairs(keys: KeySet, message: str) -> None:
    assert login(keys, message.format(token()))[1] == Success("carol", lifetime_ms=600_000)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["a", "other-name"]},
        {"exp": NOW_S + 600.0, "nbf": NOW_S + 29, "iat": int(NOW_S)},
        {"scope": ["x", "y"]},
        {"scope": ...},
        {"sub": " carol "},
    ],
    ids=str,
)
def test_other_forms_of_claims_are_taken(keys: KeySet, claims: Mapping[str, Any]) -> None:
    assert sent(keys, **claims) == Success("carol", lifetime_ms=600_000)


def test_without_rules_every_audience_and_issuer_is_taken(keys: KeySet) -> None:
    assert sent(keys, rules=TokenRules(), aud="any", iss="any") == Success("carol", lifetime_ms=600_000)
    assert sent(keys, rules=TokenRules(), aud=..., iss=...) == Success("carol", lifetime_ms=600_000)


def test_the_name_may_be_in_another_claim(keys: KeySet) -> None:
    rules = TokenRules(subject_claim="preferred_username", scope_claim="roles")
    assert sent(keys, rules=rules, preferred_username="dave", sub=...) == Success("dave", lifetime_ms=600_000)
    assert sent(keys, rules=rules) == REFUSED
    assert sent(keys, rules=rules, preferred_username="dave", roles=7) == REFUSED


@pytest.mark.parametrize(
    "claims",
    [
        *({name: ...} for name in ("sub", "iss", "aud", "iat", "exp")),
        *({name: None} for name in ("sub", "iss", "aud", "iat", "exp")),
        *(
            {"exp": value}
            for value in (NOW_S - 100, NOW_S - 10, NOW_S, "9999999999", True, 1e300, 10**30, float("inf"), float("nan"))
        ),
        {"iat": "now"},
        {"iat": -1},
        {"nbf": NOW_S + 31},
        {"nbf": "soon"},
        {"aud": "else"},
        {"aud": [7, "kafka"]},
        {"iss": "https://evil.test"},
        {"iss": ["https://issuer.test"]},
        {"sub": ""},
        {"sub": " "},
        {"sub": 7},
        {"sub": "ca\nrol"},
        {"scope": 7},
        {"scope": [7]},
    ],
    ids=str,
)
def test_other_claims_are_refused(keys: KeySet, claims: Mapping[str, Any]) -> None:
    assert sent(keys, **claims) == REFUSED


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (OTHERS_RSA, "RS256", "rsa"),
        (RSA, "RS512", "rsa"),
        (RSA, "RS256", "pss"),
        (RSA, "RS256", "unknown"),
        (RSA, "RS256", None),
        (OTHERS_RSA, "RS256", "encryption"),
        (WEAK_RSA, "RS256", "weak"),
        (SHARED, "HS256", "shared"),
        ("", "none", "rsa"),
        ("", "none", None),
    ],
)
def test_other_keys_and_algorithms_are_refused(keys: KeySet, key: Any, algorithm: str, kid: str | None) -> None:
    assert sent(keys, key=key, algorithm=algorithm, kid=kid) == REFUSED


def test_a_public_key_is_no_shared_secret(keys: KeySet) -> None:
    """The classical confusion: HS256 with the public key's text as the secret."""
    head, body, _ = token(SHARED, "HS256", "rsa").split(".")
    signature = jwt.get_algorithm_by_name("HS256").sign(f"{head}.{body}".encode(), json.dumps(ENTRIES[0]).encode())
    forged = f"{head}.{body}.{jwt.utils.base64url_encode(signature).decode()}"
    assert login(keys, f"n,,\1auth=Bearer {forged}\1\1")[1] == REFUSED


def test_a_token_without_a_name_of_its_key_is_of_the_only_one(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [public("ES256", P_256.public_key())]}))
    assert sent(load(path), kid=None) == Success("carol", lifetime_ms=600_000)


@pytest.mark.parametrize("text", ["abc", "a.b.c", "...", "e30.e30.e30", "W10.e30.", f"{'WyI' * 4000}.e30.e30"])
def test_a_text_that_is_no_token_is_refused(keys: KeySet, text: str) -> None:
    assert login(keys, f"n,,\1auth=Bearer {text}\1\1")[1] == REFUSED


def test_a_refusal_has_a_second_step(keys: KeySet) -> None:
    message = f"n,,\1auth=Bearer {token(aud='else')}\1\1"
    exchange, challenge = login(keys, message)
    assert challenge == REFUSED
    assert exchange.step(b"\1") == Failure(REFUSAL, "the token was refused (InvalidAudienceError)")
    exchange, _ = login(keys, message)
    another = exchange.step(f"n,,\1auth=Bearer {token()}\1\1".encode())
    assert another == Failure(None, "the token was refused (InvalidAudienceError)")


@pytest.mark.parametrize(
    "message",
    [
        "",
        "hello",
        "\1",
        "n,,\1\1",
        "n,,\1auth=Bearer {}\1",
        "y,,\1auth=Bearer {}\1\1",
        "n,a=,\1auth=Bearer {}\1\1",
        "n,,\1auth=Bearer\1\1",
        "n,,\1auth=Basic {}\1\1",
        "n,,\1host=x\1\1",
        "n,,\1auth=Bearer {}\1é=1\1\1",
    ],
)
def test_other_messages_fail_at_once(keys: KeySet, message: str) -> None:
    result = login(keys, message.format(token()))[1]
    assert isinstance(result, Failure)
    assert result.text is None


def test_an_authorization_id_is_the_users_own_name(keys: KeySet) -> None:
    result = login(keys, f"n,a=admin,\1auth=Bearer {token()}\1\1")[1]
    asked = "Authentication failed: Client requested an authorization id (admin)"
    assert result == Failure(f"{asked} that is different from the token's principal name (carol)")
    for hostile in ("a\nb", "a" * 1000):
        assert login(keys, f"n,a={hostile},\1auth=Bearer {token()}\1\1")[1] == Failure()


PARTS = ["n", ",", "a=", "carol", "\1", "auth=", "Bearer ", "e30", ".", "é", token(), token(aud="else")]


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=3)).map("".join), st.binary())
def test_any_messages_have_results(message: str, second: bytes) -> None:
    exchange, first = login(KeySet({}, (0, 0, 0)), message)
    assert isinstance(first, Challenge | Failure)
    assert isinstance(exchange.step(second), Challenge | Failure)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists), st.data())
def test_any_claims_have_results(keys: KeySet, value: object, data: st.DataObject) -> None:
    claim = data.draw(st.sampled_from(["sub", "iss", "aud", "iat", "exp", "nbf", "scope", "jti"]))
    assert isinstance(sent(keys, **{claim: value}), Challenge | Success)


def test_a_changed_file_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": ENTRIES}))
    known = load(path)
    assert not changed(path, known)
    replacement = tmp_path / "new.json"
    replacement.write_text(json.dumps({"keys": ENTRIES[:1]}))
    replacement.replace(path)
    assert changed(path, known)
    assert sent(load(path)) == REFUSED


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"keys": 7}', '{"keys": []}', pytest.param(json.dumps({"keys": ENTRIES[4:]}), id="none for signatures")],
)
def test_a_file_without_usable_keys_is_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"jwks\.json (is not|has no key)"):
        load(path)


def test_key_sets_are_files() -> None:
    assert jwks_path("file:///etc/keys%20of/issuer.json") == Path("/etc/keys of/issuer.json")
    for url in ("https://issuer.test/keys", "file://host/keys", "/etc/keys", "file:"):
        with pytest.raises(ValueError, match="is not the URL of a file"):
            jwks_path(url)


def test_tokens_and_keys_are_not_printed(keys: KeySet) -> None:
    assert "PyJWK" not in repr(keys)
    exchange, refused = login(keys, f"n,,\1auth=Bearer {token(sub='hunter2', exp=1)}\1\1")
    printed = f"{refused!r} {exchange.step(bytes([1]))!r}"
    assert "hunter2" not in printed
    assert token().split(".")[0] not in printed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (token(exp=NOW_S), "the token has ended"),
        (token(aud="else"), "the token was refused (InvalidAudienceError)"),
        (token(kid="unknown"), "the key set has no key with the token's kid"),
        ("hunter2", "the token was refused (DecodeError)"),
        ("é", "the token was refused (DecodeError)"),
    ],
    ids=["ended", "audience", "key", "no token", "no ASCII"],
)
def test_a_token_without_an_exchange_is_refused_with_its_reason(keys: KeySet, text: str, reason: str) -> None:
    judge = OAuthBearer(RULES, lambda: keys, lambda: NOW_S)
    assert judge.name_of(token()) == "carol"
    with pytest.raises(TokenRefused) as caught:
        judge.name_of(text)
    assert str(caught.value) == reason
