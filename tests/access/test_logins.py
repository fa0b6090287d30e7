"""Logins of gRPC callers: passwords of both kinds, tokens, certificates, and what an attacker learns."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping

import pytest

from kraftlab.access import logins
from kraftlab.access.logins import WRONG, CertificateLogin, Login, SaslLogin, UserLogin
from kraftlab.access.sasl.exchange import NotLoaded
from kraftlab.access.sasl.scram import HASHES, keys
from kraftlab.access.users import AuthenticationFailed, Users
from kraftlab.metadata.scram import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def credential(mechanism: ScramMechanism, password: str) -> ScramCredential:
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), b"salt" * 5, 4096)
    return ScramCredential(b"salt" * 5, *keys(HASHES[mechanism], salted), 4096)


class Lab:
    """A listener with a PLAIN user, and SCRAM users that can change."""

    def __init__(self) -> None:
        self.credentials = {("bob", SHA_512): credential(SHA_512, "bob-secret")}
        self.login = SaslLogin({"alice": "alice-secret"}, [SHA_256, SHA_512], self.credential_of, self.name_of_token)

    def credential_of(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self.credentials.get((name, mechanism))

    def name_of_token(self, token: str) -> str:
        if token != "good":
            raise ValueError(f"{token} is bad")
        return "carol"


def principal(login: Login, headers: Mapping[str, str], certificate: bytes | None = None) -> str:
    return asyncio.run(login.principal(headers, certificate))


def asked(name: str | None = None, password: str | None = None, **others: str) -> dict[str, str]:
    values = {"kraftlab-user": name, "kraftlab-password": password, **others}
    return {key: value for key, value in values.items() if value is not None}


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "FAILURE_DELAY_S", 0)


def test_users_of_both_kinds_and_tokens_log_in() -> None:
    lab = Lab()
    assert principal(lab.login, asked("alice", "alice-secret")) == "User:alice"
    assert principal(lab.login, asked("bob", "bob-secret")) == "User:bob"
    assert principal(lab.login, asked(authorization="Bearer good")) == "User:carol"
    assert principal(lab.login, asked(authorization="bearer good")) == "User:carol"


@pytest.mark.parametrize(
    ("name", "password"),
    [("alice", "wrong"), ("alice", ""), ("bob", "wrong"), ("nobody", "x"), ("nobody", ""), ("", ""), ("alice", "alice-secret ")],
)
def test_a_wrong_password_and_an_unknown_user_get_one_text(name: str, password: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        principal(Lab().login, asked(name, password))
    assert str(caught.value) == WRONG


@pytest.mark.parametrize("headers", [{}, asked("alice"), asked(password="x"), asked(authorization="Basic x")])
def test_a_call_without_a_whole_login_is_refused_with_the_next_step(headers: dict[str, str]) -> None:
    with pytest.raises(AuthenticationFailed, match="send kraftlab-user and kraftlab-password"):
        principal(Lab().login, headers)


def test_a_bad_token_is_refused_and_not_repeated() -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        principal(Lab().login, asked(authorization="Bearer s3cret-token"))
    assert "s3cret" not in str(caught.value)


def test_a_right_password_is_salted_once_and_counts_no_longer_than_its_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    lab, salted = Lab(), []

    def password_fits(known: ScramCredential, mechanism: ScramMechanism, password: str) -> bool:
        salted.append(mechanism)
        return fits(known, mechanism, password)

    fits = logins.password_fits
    monkeypatch.setattr(logins, "password_fits", password_fits)
    for _ in range(3):
        principal(lab.login, asked("bob", "bob-secret"))
    assert salted.count(SHA_512) == 1
    lab.credentials["bob", SHA_512] = credential(SHA_512, "another")
    with pytest.raises(AuthenticationFailed):
        principal(lab.login, asked("bob", "bob-secret"))
    del lab.credentials["bob", SHA_512]
    with pytest.raises(AuthenticationFailed):
        principal(lab.login, asked("bob", "another"))


def test_proofs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "PROOFS_MAX", 3)
    monkeypatch.setattr(logins, "password_fits", lambda *arguments: True)
    lab = Lab()
    for number in range(10):
        lab.credentials[f"user{number}", SHA_256] = lab.credentials["bob", SHA_512]
        principal(lab.login, asked(f"user{number}", "x"))
    assert len(lab.login.proofs) == 3


def test_a_node_that_knows_no_users_yet_says_so() -> None:
    def not_loaded(name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        raise NotLoaded

    with pytest.raises(AuthenticationFailed, match="try again"):
        principal(SaslLogin({}, [SHA_256], not_loaded), asked("bob", "bob-secret"))


def test_a_certificate_names_the_caller_and_leaves_no_place_for_a_password() -> None:
    login = CertificateLogin(lambda certificate: f"User:{certificate.decode()}")
    assert principal(login, {}, b"alice") == "User:alice"
    assert principal(login, {}) == "User:ANONYMOUS"
    for headers in (asked("bob", "x"), asked(authorization="Bearer x")):
        with pytest.raises(AuthenticationFailed, match="by their certificate"):
            principal(login, headers, b"alice")


def test_a_certificate_that_names_nobody_is_refused() -> None:
    def nobody(certificate: bytes) -> str:
        raise ValueError("no rule applies")

    with pytest.raises(AuthenticationFailed, match="no rule applies"):
        principal(CertificateLogin(nobody), {}, b"x")


def test_a_plaintext_listener_has_the_users_of_its_file() -> None:
    login = UserLogin(Users({"alice": "secret"}))
    assert principal(login, asked("alice", "secret")) == "User:alice"
    assert principal(login, {}) == "User:ANONYMOUS"
