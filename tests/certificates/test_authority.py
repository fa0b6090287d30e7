"""Certificates that an authority issues: contents, renewal, refusals, and what other programs make of them."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store

from kraftlab.access.distinguished_name import name_text
from kraftlab.certificates import authority
from kraftlab.certificates.authority import Identity
from kraftlab.config.errors import ConfigError

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
BOTH = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]


@pytest.fixture(scope="module")
def by() -> Identity:
    return authority.create_authority(NOW)


def usages(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_a_nodes_certificate_is_accepted_for_its_hosts_by_an_independent_verifier(by: Identity) -> None:
    node = authority.issue_node(by, "broker-3", ["kafka3.example.org", "10.0.0.3", "[::1]", "*.example.net"], NOW)
    verifier = PolicyBuilder().store(Store([by.certificate])).time(NOW + DAY)
    for host in ("kafka3.example.org", "any.example.net"):
        assert verifier.build_server_verifier(x509.DNSName(host)).verify(node.certificate, []) == [
            node.certificate,
            by.certificate,
        ]
    for address in ("10.0.0.3", "::1"):
        assert verifier.build_server_verifier(x509.IPAddress(ipaddress.ip_address(address))).verify(node.certificate, [])
    with pytest.raises(x509.verification.VerificationError):
        verifier.build_server_verifier(x509.DNSName("kafka4.example.org")).verify(node.certificate, [])
    assert name_text(node.certificate.subject) == "CN=broker-3"
    assert usages(node.certificate) == BOTH


def test_a_users_certificate_is_for_clients_only(by: Identity) -> None:
    alice = authority.issue_user(by, "alice", NOW)
    assert name_text(alice.certificate.subject) == "CN=alice"
    assert usages(alice.certificate) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert alice.certificate.not_valid_after_utc == NOW + 365 * DAY
    assert alice.certificate.not_valid_before_utc < NOW


@pytest.mark.parametrize("user", ["broker-3", "Broker-3", "controller-0", "BROKER-007"])
def test_a_user_cannot_have_the_name_of_a_node(by: Identity, user: str) -> None:
    with pytest.raises(ConfigError, match=f"{user} is the name of a node; use --(broker|controller) "):
        authority.issue_user(by, user, NOW)


@pytest.mark.parametrize("user", ["", " ", "a" * 65, "ä" * 33, "a\nb", "\0", "\udcff"])
def test_a_user_needs_a_common_name(by: Identity, user: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a common name; use printable characters, at most 64 bytes"):
        authority.issue_user(by, user, NOW)


@pytest.mark.parametrize("host", ["", "a b", "http://a", "a:9092", "-\0", "a..b"])
def test_a_host_is_a_name_or_an_address(by: Identity, host: str) -> None:
    with pytest.raises(ConfigError, match="is not a host name or an IP address"):
        authority.issue_node(by, "broker-1", [host], NOW)


def test_a_renewed_certificate_has_the_same_names_a_new_key_and_a_later_end(by: Identity) -> None:
    old = authority.issue_node(by, "controller-1", ["localhost", "127.0.0.1"], NOW)
    new = authority.renew(by, old.certificate, NOW + 300 * DAY, 365)
    assert new.certificate.subject == old.certificate.subject
    for kind in (x509.SubjectAlternativeName, x509.ExtendedKeyUsage):
        assert new.certificate.extensions.get_extension_for_class(kind) == old.certificate.extensions.get_extension_for_class(
            kind
        )
    assert new.certificate.not_valid_after_utc == NOW + 665 * DAY
    assert new.key.public_key() != old.key.public_key()
    assert new.certificate.serial_number != old.certificate.serial_number


def test_certificates_stay_valid_under_a_renewed_authority(by: Identity) -> None:
    alice = authority.issue_user(by, "alice", NOW)
    renewed = authority.renew_authority(by, NOW + DAY, 4000)
    alice.certificate.verify_directly_issued_by(renewed.certificate)
    assert renewed.certificate.not_valid_after_utc == NOW + 4001 * DAY


def test_no_certificate_outlives_its_authority() -> None:
    by = authority.create_authority(NOW, days=10)
    assert authority.issue_user(by, "alice", NOW).certificate.not_valid_after_utc == NOW + 10 * DAY
    with pytest.raises(
        ConfigError, match=r"the authority expired at 2026-06-11 12:00 UTC; renew it: kraftlab certificates renew"
    ):
        authority.issue_user(by, "alice", NOW + 10 * DAY)


def test_a_pkcs12_store_has_the_key_and_the_authority_and_needs_its_password(by: Identity) -> None:
    alice = authority.issue_user(by, "alice", NOW)
    data = alice.pkcs12("alice", by.certificate, "pässword")
    store = pkcs12.load_pkcs12(data, "pässword".encode())
    assert store.cert is not None
    assert (store.cert.certificate, store.cert.friendly_name) == (alice.certificate, b"alice")
    assert [each.certificate for each in store.additional_certs] == [by.certificate]
    with pytest.raises(ValueError, match="password"):
        pkcs12.load_pkcs12(data, b"other")


def test_no_key_is_in_a_repr(by: Identity) -> None:
    assert "key" not in repr(by)
