"""Callers of /metrics, by what they prove and what the cluster's rules allow them; and the readiness of nodes."""

from __future__ import annotations

import base64

import pytest

from kraftlab.access.authorizer import AccessSettings, Authorizer, Rights
from kraftlab.access.logins import CertificateLogin, Login, SaslLogin, UserLogin
from kraftlab.access.users import Users
from kraftlab.common.audit import failed_logins
from kraftlab.metadata.acls import AclsImage
from kraftlab.metrics.answers import Caller
from kraftlab.metrics.pages import AccessRefused
from kraftlab.node.metrics import admission

HOST = "192.0.2.1"
AUTHORIZER = Authorizer(AccessSettings(is_enabled=True, super_users=frozenset({"User:admin"})))
PASSWORDS = SaslLogin({"admin": "s:ecret", "alice": "wonder"})


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def status(
    login: Login,
    authorization: str = "",
    certificate: bytes | None = None,
    *,
    is_loaded: bool = True,
    authorizer: Authorizer = AUTHORIZER,
) -> int:
    """The HTTP status of a caller at a node with that authorizer."""

    def rights(principal: str, host: str) -> Rights:
        return authorizer.rights(AclsImage() if is_loaded else None, principal, host)

    try:
        admission(login, rights)(Caller(HOST, authorization, certificate))
    except AccessRefused as refusal:
        assert bool(refusal.challenge) == (refusal.status == 401)
        return refusal.status
    return 200


def test_only_who_may_describe_the_cluster_reads() -> None:
    assert status(PASSWORDS, basic("admin:s:ecret")) == 200
    assert status(PASSWORDS, basic("alice:wonder")) == 403
    assert status(UserLogin(Users({}))) == 403


def test_a_node_without_metadata_admits_super_users_alone() -> None:
    assert status(PASSWORDS, basic("admin:s:ecret"), is_loaded=False) == 200
    assert status(PASSWORDS, basic("alice:wonder"), is_loaded=False) == 503


@pytest.mark.parametrize(
    "authorization",
    ["", "Basic", "Basic ", "Basic !!!", "Basic YWRtaW4=", basic("admin:wrong"), basic("nobody:x"), basic(":"), "Bearer x", "x",
     "Basic " + base64.b64encode(b"\xff:\xfe").decode(), basic("admin:s:ecret") + "x", basic("admin\0:s:ecret"), "Basic \xff\xfe",
     "Bearer \xe9", "\xff"],
)  # fmt: skip
def test_a_login_that_is_missing_broken_or_wrong_is_refused_in_the_same_way(authorization: str) -> None:
    assert status(PASSWORDS, authorization) == 401


def test_the_audit_log_does_not_ask_for_headers_of_grpc(caplog: pytest.LogCaptureFixture) -> None:
    assert status(PASSWORDS, basic("admin:wrong")) == 401
    assert status(PASSWORDS, "Basic !!!") == 401
    said = [record.getMessage() for record in caplog.records]
    assert said[0].endswith("or the password is wrong") and said[1].endswith("this listener needs a login")


def test_a_certificate_names_the_caller() -> None:
    login = CertificateLogin(lambda certificate: f"User:{certificate.decode()}")
    assert status(login, certificate=b"admin") == 200
    assert status(login, certificate=b"alice") == 403
    assert status(login) == 403


def test_without_an_authorizer_everybody_reads() -> None:
    assert status(UserLogin(Users({})), authorizer=Authorizer(AccessSettings())) == 200
    assert status(UserLogin(Users({})), authorizer=Authorizer(AccessSettings()), is_loaded=False) == 200


def test_only_credentials_that_were_shown_count_as_a_failed_login() -> None:
    before = failed_logins("METRICS")
    assert status(PASSWORDS) == 401
    assert failed_logins("METRICS") == before
    assert status(PASSWORDS, basic("admin:wrong")) == 401
    assert failed_logins("METRICS") == before + 1
