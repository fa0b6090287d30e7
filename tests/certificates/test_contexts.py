"""Contexts of listeners and clients: every form of keys, the checks before use, and what they do in real handshakes."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat, pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kraftlab.certificates import authority, folder
from kraftlab.certificates.contexts import LoadedTls, client_context, file_marks, server_context
from kraftlab.config.errors import ConfigError

from .conftest import Settings

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def connect(server: LoadedTls, client: LoadedTls, host: str | None = "localhost") -> ssl.SSLObject:
    """Let a client connect in memory, and return the server's side. ssl.SSLError of the side that refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    calling = client.context.wrap_bio(to_client, to_server, server_hostname=host)
    serving = server.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(5):
        for side in (calling, serving):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert serving.version()
    return serving


def refusal(tls: object, **options: object) -> str:
    with pytest.raises(ConfigError) as refused:
        server_context(tls, **options)  # type: ignore[arg-type]
    return str(refused.value)


def pem(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path


@pytest.fixture
def text(pki: Path) -> str:
    return (pki / "broker-1.pem").read_text()


# --- forms of keys -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["file", "inline", "inline in one line", "encrypted", "PKCS12", "RSA"])
def form(request: pytest.FixtureRequest, pki: Path, tmp_path: Path, text: str) -> dict[str, object]:
    """Properties of one form of the same material."""
    key, mark, rest = text.partition("-----BEGIN CERTIFICATE-----")
    material = folder.read_identity(pki / "broker-1.pem", None)
    ca = folder.read_certificates(pki / "ca.pem", None)[0]
    match request.param:
        case "file":
            return {}
        case "inline" | "inline in one line":
            both = (key, mark + rest) if request.param == "inline" else (key.replace("\n", " "), (mark + rest).replace("\n", " "))
            return {"keystore_location": None, "keystore_key": both[0], "keystore_certificate_chain": both[1]}
        case "encrypted":
            encrypted = material.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
            path = pem(tmp_path / "node.pem", encrypted, (mark + rest).encode())
            return {"keystore_location": path, "key_password": "secret"}
        case "PKCS12":
            keys = pkcs12.serialize_key_and_certificates(
                b"node", material.key, material.certificate, [ca], BestAvailableEncryption(b"secret")
            )
            trust = pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(ca, b"ca")], BestAvailableEncryption(b"trusted"))
            return {
                "keystore_type": "PKCS12",
                "keystore_location": pem(tmp_path / "node.p12", keys),
                "keystore_password": "secret",
                "truststore_type": "pkcs12",
                "truststore_location": pem(tmp_path / "trust.p12", trust),
                "truststore_password": "trusted",
            }
        case _:
            rsa_key = rsa.generate_private_key(65537, 2048)
            by = folder.open_authority(pki)
            builder = x509.CertificateBuilder(
                by.certificate.subject,
                material.certificate.subject,
                rsa_key.public_key(),
                1,
                NOW - DAY,
                NOW + DAY,
                [each for each in material.certificate.extensions if not isinstance(each.value, x509.SubjectKeyIdentifier)],
            )
            traditional = rsa_key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
            certificate = builder.sign(by.key, hashes.SHA256()).public_bytes(Encoding.PEM)
            return {"keystore_location": pem(tmp_path / "rsa.pem", traditional, certificate)}


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_every_form_of_keys_serves_clients_with_certificates(
    form: dict[str, object], protocol: str, settings: Settings, pki: Path
) -> None:
    server = server_context(settings(**form, client_auth="required", enabled_protocols=protocol), is_between_nodes=True)
    client = client_context(settings(keystore_location=pki / "alice.pem"))
    side = connect(server, client)
    assert side.version() == protocol
    assert side.getpeercert(binary_form=True) == folder.read_certificates(pki / "alice.pem", None)[0].public_bytes(Encoding.DER)
    assert server.subject == "CN=broker-1"
    assert server.sans == ("DNS:localhost", "IP:127.0.0.1")
    assert server.keys is not None
    assert server.expires_at == server.keys.certificate.not_valid_after_utc
    assert x509.load_pem_x509_certificate(server.authorities_pem) == folder.read_certificates(pki / "ca.pem", None)[0]


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_no_session_outlives_the_certificate_that_began_it(settings: Settings, protocol: str) -> None:
    server, client = server_context(settings(enabled_protocols=protocol)), client_context(settings())
    session, reused = None, []
    for _ in range(2):
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        calling = client.context.wrap_bio(to_client, to_server, server_hostname="localhost", session=session)
        serving = server.context.wrap_bio(to_server, to_client, server_side=True)
        for side in (calling, serving) * 3:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
        serving.write(b"x")
        assert calling.read(1) == b"x"
        session = calling.session
        reused.append(calling.session_reused)
    assert reused == [False, False]


def test_no_file_with_a_key_and_no_descriptor_is_left(settings: Settings, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        server_context(settings())
    assert len(os.listdir("/proc/self/fd")) <= before
    assert list(tmp_path.iterdir()) == []


def test_no_key_is_in_a_repr(settings: Settings) -> None:
    assert "key=" not in repr(server_context(settings()))


# --- connections -------------------------------------------------------------------------------------------------------------


def test_client_certificates_are_required_requested_or_not_asked_for(settings: Settings, pki: Path, other_pki: Path) -> None:
    nobody, alice = (settings(keystore_location=path) for path in (None, pki / "alice.pem"))
    stranger = settings(keystore_location=other_pki / "alice.pem")
    required = server_context(settings(client_auth="required"))
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        connect(required, client_context(nobody))
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer certificate"):
        connect(required, client_context(stranger))
    requested = server_context(settings(client_auth="requested"))
    assert connect(requested, client_context(nobody)).getpeercert(binary_form=True) is None
    assert connect(requested, client_context(alice)).getpeercert(binary_form=True) is not None
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(requested, client_context(stranger))
    none = server_context(settings(client_auth="none"))
    assert connect(none, client_context(stranger)).getpeercert(binary_form=True) is None


def test_a_client_compares_the_host_unless_told_not_to(settings: Settings) -> None:
    server = server_context(settings())
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        connect(server, client_context(settings()), "elsewhere.example.org")
    assert connect(server, client_context(settings(endpoint_identification_algorithm="")), "elsewhere.example.org")
    assert connect(server, client_context(settings()), "127.0.0.1")


def test_a_client_without_a_truststore_trusts_the_machines_authorities_only(settings: Settings) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(server_context(settings()), client_context(settings(truststore_location=None)))


def test_suites_and_protocols_are_those_of_the_settings(settings: Settings) -> None:
    chosen = settings(cipher_suites="TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256")
    side = connect(server_context(chosen), client_context(settings()))
    assert side.version() == "TLSv1.2"
    assert side.cipher() is not None
    assert side.cipher()[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"  # type: ignore[index]
    assert server_context(settings()).context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_as_in_java_one_certificate_can_be_trusted_without_its_authority(settings: Settings, pki: Path, tmp_path: Path) -> None:
    alone = pem(tmp_path / "trust.pem", (pki / "alice.pem").read_bytes())
    server = server_context(settings(truststore_location=alone, client_auth="required"))
    assert connect(server, client_context(settings(keystore_location=pki / "alice.pem")))
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(server, client_context(settings(keystore_location=pki / "broker-1.pem")))


# --- checks before use -------------------------------------------------------------------------------------------------------


def test_a_key_of_another_certificate_is_refused(settings: Settings, pki: Path, other_pki: Path, tmp_path: Path) -> None:
    key = (pki / "broker-1.pem").read_text().partition("-----BEGIN CERTIFICATE")[0]
    mixed = pem(tmp_path / "mixed.pem", key.encode(), (other_pki / "ca.pem").read_bytes())
    assert refusal(settings(keystore_location=mixed)) == (
        f"listener KAFKA: ssl.keystore.location={mixed}: the private key does not belong to the first certificate; put the key "
        "and its own one there"
    )


def test_a_certificate_has_to_be_valid_now(settings: Settings) -> None:
    tls = settings()
    valid = server_context(tls)
    assert valid.expires_at is not None
    assert "the certificate CN=broker-1 expired at" in refusal(tls, now=valid.expires_at)
    assert "CN=broker-1 is not valid before" in refusal(tls, now=NOW - DAY)
    with pytest.raises(ConfigError, match="expired at"):
        client_context(tls, now=valid.expires_at)


def test_a_certificate_has_to_be_for_its_side(settings: Settings, pki: Path, tmp_path: Path) -> None:
    assert "the certificate CN=alice is not for servers (extended key usage)" in refusal(
        settings(keystore_location=pki / "alice.pem")
    )
    by, key = folder.open_authority(pki), ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(
        by.certificate.subject,
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")]),
        key.public_key(),
        1,
        NOW - DAY,
        NOW + DAY,
    )
    for_servers = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    path = pem(tmp_path / "x.pem", authority.Identity(key, for_servers.sign(by.key, hashes.SHA256())).pem())
    assert server_context(settings(keystore_location=path)).subject == "CN=x"
    assert "is not for clients" in refusal(settings(keystore_location=path), is_between_nodes=True)
    with pytest.raises(ConfigError, match="is not for clients"):
        client_context(settings(keystore_location=path))
    without = pem(tmp_path / "y.pem", authority.Identity(key, builder.sign(by.key, hashes.SHA256())).pem())
    assert server_context(settings(keystore_location=without), is_between_nodes=True)


def test_between_nodes_the_certificate_verifies_against_the_nodes_own_truststore(
    settings: Settings, other_pki: Path, pki: Path
) -> None:
    other = settings(truststore_location=other_pki / "ca.pem", client_auth="required")
    assert server_context(other), "clients may have another authority than the listener"
    assert refusal(other, is_between_nodes=True) == (
        f"listener KAFKA: ssl.keystore.location={pki}/broker-1.pem: the certificate does not verify against listener KAFKA: "
        f"ssl.truststore.location={other_pki}/ca.pem: unable to get local issuer certificate; add its authority to the "
        "truststore, or have one there issue it"
    )


def test_suites_have_to_fit_the_key(settings: Settings) -> None:
    assert "no connection is possible with this key, ssl.enabled.protocols and ssl.cipher.suites: NO_SHARED_CIPHER" in refusal(
        settings(cipher_suites="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    )


def test_a_weak_key_is_refused(settings: Settings, tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "weak")])
    certificate = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW - DAY, NOW + DAY).sign(key, hashes.SHA256())
    parts = (key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), certificate.public_bytes(Encoding.PEM))
    assert "EE_KEY_TOO_SMALL; use an ECDSA P-256 key, or RSA of at least 2048 bits" in refusal(
        settings(keystore_location=pem(tmp_path / "weak.pem", *parts))
    )


def test_a_listener_needs_a_key_and_authorities_for_its_clients(settings: Settings) -> None:
    assert refusal(settings(keystore_location=None)) == (
        "listener KAFKA: a listener with TLS needs a key; set ssl.keystore.location or ssl.keystore.key"
    )
    assert refusal(settings(truststore_location=None, client_auth="requested")) == (
        "listener KAFKA: ssl.client.auth=requested needs authorities to trust; set ssl.truststore.location"
    )


# --- replacing a context -----------------------------------------------------------------------------------------------------


@pytest.fixture
def replaced(pki: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the authority's folder, in which files may change."""
    for path in pki.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_a_renewed_certificate_replaces_the_old_one_and_open_contexts_stay(settings: Settings, replaced: Path) -> None:
    tls = settings(keystore_location=replaced / "broker-1.pem")
    old = server_context(tls)
    assert not old.has_changed_files()
    folder.renew(replaced / "broker-1.pem")
    assert old.has_changed_files()
    new = server_context(tls, old)
    assert not new.has_changed_files()
    assert new.context is not old.context
    assert connect(old, client_context(settings()))
    assert connect(new, client_context(settings()))


def test_a_certificate_of_another_name_is_refused_unless_allowed(settings: Settings, replaced: Path) -> None:
    old = server_context(settings())
    path = folder.issue(replaced, "broker-2", ["localhost", "127.0.0.1"])
    assert "Keystore DistinguishedName does not match: existing={DN=CN=broker-1}, new={DN=CN=broker-2}; " in refusal(
        settings(keystore_location=path), previous=old
    )
    assert server_context(settings(keystore_location=path, allow_dn_changes="true"), old).subject == "CN=broker-2"


def test_a_certificate_with_fewer_hosts_is_refused_unless_allowed(settings: Settings, replaced: Path) -> None:
    old = server_context(settings())
    more = folder.issue(replaced, "broker-1", ["127.0.0.1", "localhost", "a.example.org"], replace=True)
    wider = server_context(settings(keystore_location=more), old)
    assert wider.sans[-1] == "DNS:a.example.org"
    assert refusal(settings(), previous=wider).endswith(
        "Keystore SubjectAltNames do not match: existing={SAN=[IP:127.0.0.1, DNS:localhost, DNS:a.example.org]}, "
        "new={SAN=[DNS:localhost, IP:127.0.0.1]}; issue one with all of them, or set ssl.allow.san.changes=true"
    )
    assert server_context(settings(allow_san_changes="true"), wider).sans == old.sans


def test_marks_show_every_way_to_change_a_file(settings: Settings, replaced: Path) -> None:
    path = replaced / "broker-1.pem"
    tls = settings(keystore_location=path)
    seen = [file_marks(tls)]
    path.write_bytes(path.read_bytes() + b"\n")  # in place
    seen.append(file_marks(tls))
    os.utime(path, ns=(1, 1))
    seen.append(file_marks(tls))
    (replaced / "next").write_bytes(path.read_bytes())
    os.utime(replaced / "next", ns=(1, 1))
    (replaced / "next").replace(path)  # the same size and time
    seen.append(file_marks(tls))
    path.unlink()
    seen.append(file_marks(tls))
    assert len(set(seen)) == len(seen)
    assert file_marks(tls) == seen[-1]
    assert file_marks(settings(keystore_location=None, truststore_location=None)) == ()
