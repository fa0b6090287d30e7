"""Distinguished names of certificates as Apache Kafka 4.3 gives them to mapping rules."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.access.distinguished_name import UnreadableCertificate, distinguished_name, name_text

RECORDED = json.loads((Path(__file__).parent / "data" / "distinguished-names.json").read_text())["steps"]


def of(value: str, oid: x509.ObjectIdentifier = NameOID.COMMON_NAME) -> str:
    return name_text(x509.Name([x509.NameAttribute(oid, value)]))


@pytest.mark.parametrize("step", RECORDED, ids=lambda step: step["subject"])
def test_names_are_as_recorded(step: dict[str, str]) -> None:
    assert distinguished_name(ssl.PEM_cert_to_DER_cert(step["certificate"])) == step["kafka (X500Principal.getName)"]


def test_all_cases_are_played() -> None:
    assert len(RECORDED) == 13


def test_every_blank_at_the_ends_is_escaped_and_every_hash() -> None:
    assert of("  a # b \r ") == "CN=\\ \\ a \\# b\\ \\\r\\ "


def test_a_long_value_without_a_keyword_has_its_der_length() -> None:
    value = "a" * 300 + "@x"
    assert of(value, NameOID.EMAIL_ADDRESS) == f"1.2.840.113549.1.9.1=#1682012e{value.encode().hex()}"


@given(st.binary(max_size=60))
def test_bytes_that_are_no_certificate_are_refused(der: bytes) -> None:
    with pytest.raises(UnreadableCertificate, match="the certificate cannot be read"):
        distinguished_name(der)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=16))
def test_two_values_never_have_one_text(value: str) -> None:
    """Otherwise one certificate could have another's principal. Unescaping gives the value back."""
    text = of(value).removeprefix("CN=")
    back, characters = "", iter(text)
    for char in characters:
        if char == "\\":
            char = next(characters)
            if char == "0":
                char = "\0" if next(characters) == "0" else "?"
        back += char
    assert back == value
