"""Key and trust material: refusals that name the file, the next step and no secret; odd bytes never crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.certificates import folder
from kraftlab.certificates.contexts import server_context
from kraftlab.certificates.stores import pem_certificates, pem_key, pkcs12_content, refuse_other_format
from kraftlab.config.errors import ConfigError

from .conftest import Settings

SECRET = "do-not-show-me"


def refusal(settings: Settings, path: Path, data: bytes, **changes: object) -> str:
    """Write a keystore, and return the refusal without its beginning."""
    path.write_bytes(data)
    with pytest.raises(ConfigError) as refused:
        server_context(settings(keystore_location=path, **changes))
    assert str(refused.value).startswith(f"listener KAFKA: ssl.keystore.location={path}")
    assert SECRET not in str(refused.value)
    return str(refused.value).removeprefix(f"listener KAFKA: ssl.keystore.location={path}")


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
@pytest.mark.parametrize(("magic", "found"), [(b"\xfe\xed\xfe\xed", "JKS"), (b"\xce\xce\xce\xce", "JCEKS")])
def test_javas_own_stores_are_refused_with_the_command_that_converts_them(
    kind: str, magic: bytes, found: str, settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "node.jks"
    password = None if kind == "PEM" else SECRET
    text = refusal(settings, path, magic + bytes(100), keystore_type=kind, keystore_password=password)
    assert text == (
        f" is a {found} store, which only Java reads; convert it: keytool -importkeystore -srckeystore {path} "
        f"-srcstoretype {found} -destkeystore {path}.p12 -deststoretype PKCS12, then set ssl.keystore.location={path}.p12 "
        "and ssl.keystore.type=PKCS12"
    )


def test_a_store_of_another_type_than_the_key_says(settings: Settings, pki: Path, tmp_path: Path) -> None:
    text = (pki / "broker-1.pem").read_bytes()
    p12 = folder.read_identity(pki / "broker-1.pem", None)
    assert refusal(settings, tmp_path / "a", text, keystore_type=None) == (
        " is PEM, but ssl.keystore.type is JKS; set ssl.keystore.type=PEM"
    )
    assert p12.key_fits
    assert " is PKCS12, but ssl.keystore.type is PEM; set ssl.keystore.type=PKCS12" in refusal(
        settings, tmp_path / "a", b"\x30\x82"
    )
    assert " is neither PEM nor PKCS12; correct ssl.keystore.location" in refusal(settings, tmp_path / "a", b"")


def test_faults_of_pem_files_have_a_next_step(settings: Settings, pki: Path, tmp_path: Path) -> None:
    path, text = tmp_path / "a", (pki / "broker-1.pem").read_text()
    key, mark, certificate = text.partition("-----BEGIN CERTIFICATE-----")
    certificate = mark + certificate
    folder.create_authority(tmp_path / "ca")
    encrypted = folder.issue(tmp_path / "ca", "broker-1", password="right").read_bytes()
    old_form = key.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n", 1)
    table = {
        certificate: " has no private key; expected a block -----BEGIN PRIVATE KEY----- in PEM",
        key: " has no certificate; expected a block -----BEGIN CERTIFICATE----- in PEM",
        key.replace("MIGH", "AAAA") + certificate: " has a private key that cannot be read: ",
        key + certificate.replace("MII", "AAA"): " has a certificate that cannot be read: ",
        key + certificate.replace("MII", "!!!"): " has a PEM block that is not base64; copy the file again",
        encrypted.decode(): " has an encrypted private key; set ssl.key.password",
        old_form: " has a private key in OpenSSL's old encrypted form; convert it: openssl pkcs8 -topk8 -in OLD -out NEW",
    }
    for data, refused in table.items():
        assert refusal(settings, path, data.encode()).startswith(refused)
    wrong = refusal(settings, path, encrypted, key_password=SECRET)
    assert wrong == " has a private key that ssl.key.password does not open; correct the password"


def test_faults_of_pkcs12_stores_have_a_next_step(settings: Settings, pki: Path, tmp_path: Path) -> None:
    folder.create_authority(tmp_path / "ca")
    data = folder.issue(tmp_path / "ca", "broker-1", as_pkcs12=True, password="right").read_bytes()
    is_pkcs12 = {"keystore_type": "PKCS12", "keystore_password": SECRET}
    wrong = " cannot be opened with this password; give the store's password, or write it again as PKCS12"
    assert refusal(settings, tmp_path / "a", data, **is_pkcs12) == wrong
    assert refusal(settings, tmp_path / "a", data[:300], **is_pkcs12) == wrong


def test_a_missing_file_or_another_thing_is_named(settings: Settings, tmp_path: Path) -> None:
    for path, text in (
        (tmp_path / "nothing", "No such file or directory; check the path"),
        (tmp_path, "it is a directory, not a reg"),
    ):
        with pytest.raises(ConfigError, match=f"listener KAFKA: ssl.keystore.location: cannot read {path}: {text}"):
            server_context(settings(keystore_location=path))


PIECES = [
    "-----BEGIN ",
    "-----END ",
    "PRIVATE KEY",
    "CERTIFICATE",
    "ENCRYPTED ",
    "EC ",
    "-----",
    "\n",
    "MIGH",
    "MIIB",
    "AAAA",
    "=",
    "Proc-Type:",
]
WHOLE = st.tuples(
    st.sampled_from(["PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "EC PRIVATE KEY", "CERTIFICATE"]), st.binary(max_size=80)
)
BYTES = st.one_of(st.binary(), st.lists(st.sampled_from(PIECES)).map(lambda pieces: "".join(pieces).encode()))


@given(BYTES, st.sampled_from([None, "", SECRET]))
def test_odd_bytes_are_refused_and_never_crash(data: bytes, password: str | None) -> None:
    for read in (
        lambda: pem_key(data, password, "x"),
        lambda: pem_certificates(data, "x"),
        lambda: pkcs12_content(data, password, "x"),
        lambda: refuse_other_format(data, "OTHER", "ssl.keystore", "x", "x"),
    ):
        with pytest.raises(ConfigError, match=r"^x "):
            read()


@given(WHOLE)
def test_blocks_with_odd_content_are_refused_and_never_crash(block: tuple[str, bytes]) -> None:
    import base64

    kind, der = block
    data = f"-----BEGIN {kind}-----\n{base64.b64encode(der).decode()}\n-----END {kind}-----\n".encode()
    with pytest.raises(ConfigError, match=r"^x has "):
        pem_certificates(data, "x") if kind == "CERTIFICATE" else pem_key(data, SECRET, "x")
