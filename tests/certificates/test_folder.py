"""The folder of an authority: which files there are, who can read them, and when they are replaced."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from cryptography import x509

from kraftlab.certificates import folder
from kraftlab.certificates.stores import pem_certificates, pem_key
from kraftlab.config.errors import ConfigError


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    folder.create_authority(tmp_path / "ca")
    return tmp_path / "ca"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keys_are_for_the_owner_only(ca: Path) -> None:
    files = [ca / "ca.key", folder.issue(ca, "broker-1"), folder.issue(ca, "alice", as_pkcs12=True, password="secret")]
    assert [mode(path) for path in files] == [0o600] * 3
    assert mode(ca / "ca.pem") == 0o644
    assert mode(ca) == 0o700
    assert sorted(path.name for path in ca.iterdir()) == ["alice.p12", "broker-1.pem", "ca.key", "ca.pem"]


def test_nothing_is_replaced_unless_asked(ca: Path) -> None:
    path = folder.issue(ca, "broker-1")
    before = {each: each.read_bytes() for each in ca.iterdir()}
    for again in (lambda: folder.issue(ca, "broker-1"), lambda: folder.create_authority(ca)):
        with pytest.raises(ConfigError, match="exists; choose another --directory, or add --force to replace it"):
            again()
    assert {each: each.read_bytes() for each in ca.iterdir()} == before
    folder.issue(ca, "broker-1", replace=True)
    assert path.read_bytes() != before[path]


def test_one_file_has_the_key_and_the_certificate_that_belongs_to_it(ca: Path) -> None:
    path = folder.issue(ca, "broker-1", ["broker1.example.org"])
    assert folder.read_identity(path, None).key_fits
    encrypted = folder.issue(ca, "alice", password="secret")
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in encrypted.read_bytes()
    assert folder.read_identity(encrypted, "secret").key_fits
    with pytest.raises(ConfigError, match=r"alice\.pem has a private key that ssl\.key\.password does not open") as refused:
        folder.read_identity(encrypted, "wrong-one")
    assert "wrong-one" not in str(refused.value)


@pytest.mark.parametrize("as_pkcs12", [False, True])
def test_renewing_keeps_names_form_password_and_mode(ca: Path, as_pkcs12: bool) -> None:
    path = folder.issue(ca, "broker-1", ["a.example.org"], 10, password="secret", as_pkcs12=as_pkcs12)
    path.chmod(0o640)
    old = folder.read_identity(path, "secret")
    new = folder.renew(path, days=20, password="secret")
    found = folder.read_identity(path, "secret")
    assert found.certificate == new
    assert found.key_fits
    assert new.subject == old.certificate.subject
    assert new.not_valid_after_utc > old.certificate.not_valid_after_utc
    assert new.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName) == [
        "a.example.org"
    ]
    assert mode(path) == 0o640


def test_renewing_the_authority_keeps_its_key(ca: Path) -> None:
    key, issued = (ca / "ca.key").read_bytes(), folder.issue(ca, "alice")
    certificate = folder.renew(ca / "ca.pem", days=5000)
    assert (ca / "ca.key").read_bytes() == key
    assert folder.open_authority(ca).certificate == certificate
    assert folder.is_issued_by(folder.read_certificates(issued, None)[0], certificate)


def test_only_its_own_authority_renews_a_certificate(ca: Path, tmp_path: Path) -> None:
    folder.create_authority(tmp_path / "other", "Other CA")
    path = folder.issue(ca, "alice")
    with pytest.raises(ConfigError, match=r"was issued by CN=kraftlab CA, which is not the authority in .*other; give its --dir"):
        folder.renew(path, tmp_path / "other")


def test_an_authority_needs_both_of_its_files(ca: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no .*nothing/ca\.key; create an authority: kraftlab certificates create-ca"):
        folder.issue(tmp_path / "nothing", "alice")
    other = tmp_path / "other"
    folder.create_authority(other)
    (other / "ca.pem").replace(ca / "ca.pem")
    with pytest.raises(ConfigError, match=r"ca\.key is not the key of .*ca\.pem; restore the two files that belong together"):
        folder.issue(ca, "alice")


@pytest.mark.parametrize("name", ["ca", "../alice", ".alice", "a/b", "a\0"])
def test_a_name_cannot_lead_out_of_the_folder(ca: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a file here"):
        folder.issue(ca, name)


def test_throw_away_certificates_are_made_in_one_call_and_kept(tmp_path: Path) -> None:
    nodes = [*(f"broker-{number}" for number in range(4)), "controller-3000"]
    started = time.perf_counter()
    paths = folder.throw_away(tmp_path / "tls", nodes, ["admin", "alice"])
    each_s = (time.perf_counter() - started) / len(paths)
    assert set(paths) == {"ca", *nodes, "admin", "alice"}
    assert each_s < 0.05
    authority = pem_certificates(paths["ca"].read_bytes(), "ca")[0]
    for name in (*nodes, "admin", "alice"):
        text = paths[name].read_bytes()
        assert folder.is_issued_by(pem_certificates(text, name)[0], authority)
        assert pem_key(text, None, name)
    before = {path: path.read_bytes() for path in paths.values()}
    again = folder.throw_away(tmp_path / "tls", [*nodes, "broker-4"], ["admin", "alice"])
    assert {path: path.read_bytes() for path in paths.values()} == before
    assert set(again) - set(paths) == {"broker-4"}


def test_throw_away_certificates_are_issued_again_with_a_new_authority(tmp_path: Path) -> None:
    paths = folder.throw_away(tmp_path, ["broker-0"])
    (tmp_path / "ca.key").unlink()
    assert folder.throw_away(tmp_path, ["broker-0"]) == paths
    certificate, authority = (folder.read_certificates(paths[name], None)[0] for name in ("broker-0", "ca"))
    assert folder.is_issued_by(certificate, authority)
