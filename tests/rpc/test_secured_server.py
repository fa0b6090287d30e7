"""The gRPC listener under TLS: who is let in, who a caller is, and certificates that change while it serves."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio

from kraftlab.access.distinguished_name import distinguished_name
from kraftlab.access.logins import CertificateLogin, Login
from kraftlab.access.principal_mapping import parse_rules
from kraftlab.admin.v1 import admin_pb2, admin_pb2_grpc
from kraftlab.rpc.server import AdminServer, GrpcTls, TlsMaterial

from ..helpers.certificates import DAY, SERVER, Authority

REQUEST = admin_pb2.DescribeClusterRequest()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def material(certificate: Path, authority: Authority) -> TlsMaterial:
    text = certificate.read_bytes()
    return TlsMaterial(text, text[text.index(b"-----BEGIN CERTIFICATE") :], authority.certificate.read_bytes())


def principal_of(certificate: bytes) -> str:
    """The principal by rules that take users of this lab only."""
    return "User:" + parse_rules("RULE:^CN=([a-z]+)$/$1/").name(distinguished_name(certificate))


def called(port: int, authorities: bytes | None, certificate: Path | None = None, **metadata: str) -> grpc.StatusCode | None:
    """Make a call under TLS; return its status, None if it is answered."""
    key = chain = None
    if certificate is not None:
        key = certificate.read_bytes()
        chain = key[key.index(b"-----BEGIN CERTIFICATE") :]
    credentials = grpc.ssl_channel_credentials(authorities, key, chain)
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        headers = tuple((f"kraftlab-{name}", value) for name, value in metadata.items())
        try:
            admin_pb2_grpc.AdminStub(channel).DescribeCluster(REQUEST, timeout=10, metadata=headers)
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            return error.code()
        return None


async def serve(nursery: trio.Nursery, echo: Any, tls: GrpcTls, login: Login | None = None) -> Callable[..., Any]:
    """Serve; return `called` for a thread, with the port."""
    port = await nursery.start(AdminServer(echo, "127.0.0.1", 0, login=login, tls=tls).serve)
    return lambda *arguments, **metadata: trio.to_thread.run_sync(functools.partial(called, port, *arguments, **metadata))


async def test_the_caller_is_the_name_in_the_certificate(echo: Any, nursery: trio.Nursery, authority: Authority) -> None:
    held, roots = material(authority.issue("node"), authority), authority.certificate.read_bytes()
    call = await serve(nursery, echo, GrpcTls(lambda: held, requires_certificate=True), CertificateLogin(principal_of))
    assert await call(roots, authority.issue("alice", names=())) is None
    assert [each.principal for each in echo.calls] == ["User:alice"]
    assert await call(roots, authority.issue("Mallory-7", names=())) is grpc.StatusCode.UNAUTHENTICATED
    assert await call(roots, authority.issue("bob", names=()), user="alice", password="x") is grpc.StatusCode.UNAUTHENTICATED
    assert len(echo.calls) == 1


async def test_nobody_without_a_good_certificate_makes_a_call(
    echo: Any, nursery: trio.Nursery, authority: Authority, tmp_path: Path
) -> None:
    held, roots = material(authority.issue("node"), authority), authority.certificate.read_bytes()
    call = await serve(nursery, echo, GrpcTls(lambda: held, requires_certificate=True), CertificateLogin(principal_of))
    expired = authority.issue("old", begins=-3 * DAY, ends=-1 * DAY)
    early = authority.issue("early", begins=1 * DAY, ends=3 * DAY)
    server = authority.issue("server", usages=[SERVER])
    for certificate in (None, Authority(tmp_path, "other").issue("alice"), expired, early, server):
        assert await call(roots, certificate) is grpc.StatusCode.UNAVAILABLE
    assert await call(Authority(tmp_path, "third").certificate.read_bytes()) is grpc.StatusCode.UNAVAILABLE
    assert echo.calls == []


async def test_without_required_certificates_everybody_is_anonymous(
    echo: Any, nursery: trio.Nursery, authority: Authority
) -> None:
    held = material(authority.issue("node"), authority)
    call = await serve(nursery, echo, GrpcTls(lambda: held), CertificateLogin(principal_of))
    assert await call(authority.certificate.read_bytes()) is None
    assert [each.principal for each in echo.calls] == ["User:ANONYMOUS"]


async def test_a_new_certificate_counts_from_the_next_connection_on(
    echo: Any, nursery: trio.Nursery, authority: Authority, tmp_path: Path
) -> None:
    """Rotation: an open connection goes on, and new ones see the new certificate."""
    other = Authority(tmp_path, "next")
    held = [material(authority.issue("node"), authority)]
    port = await nursery.start(AdminServer(echo, "127.0.0.1", 0, tls=GrpcTls(lambda: held[-1])).serve)
    call = functools.partial(functools.partial, called, port)
    old, new = authority.certificate.read_bytes(), other.certificate.read_bytes()
    with grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(old)) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        await trio.to_thread.run_sync(stub.DescribeCluster, REQUEST)
        held.append(material(other.issue("node"), other))
        assert await trio.to_thread.run_sync(call(new)) is None
        assert await trio.to_thread.run_sync(call(old)) is grpc.StatusCode.UNAVAILABLE
        await trio.to_thread.run_sync(stub.DescribeCluster, REQUEST)


async def test_plaintext_and_tls_do_not_meet(echo: Any, nursery: trio.Nursery, authority: Authority) -> None:
    held = material(authority.issue("node"), authority)
    port = await nursery.start(AdminServer(echo, "127.0.0.1", 0, tls=GrpcTls(lambda: held)).serve)
    plain = await nursery.start(AdminServer(echo, "127.0.0.1", 0).serve)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.RpcError) as caught:
            stub = admin_pb2_grpc.AdminStub(channel)
            await trio.to_thread.run_sync(functools.partial(stub.DescribeCluster, REQUEST, timeout=5))
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert await trio.to_thread.run_sync(called, plain, authority.certificate.read_bytes()) is grpc.StatusCode.UNAVAILABLE
    assert echo.calls == []


def test_no_key_is_in_the_text_of_the_material(authority: Authority) -> None:
    shown = repr(GrpcTls(lambda: material(authority.issue("node"), authority)).material())
    assert "PRIVATE" not in shown
    assert ssl.PEM_HEADER not in shown
