"""The name of a certificate's subject as Apache Kafka gives it to mapping rules: RFC 2253, as Java prints it.

Attributes are in reverse order of the certificate. A type without a keyword in RFC 2253, such as an email address, is printed as
OID, `=#` and the DER bytes of the value in hex. A value in UTF-16 (BMPString) is printed as text, where Java prints its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED = str.maketrans({**{char: f"\\{char}" for char in ',=+<>#;"\\'}, "\0": "\\00"})
_BLANKS = " \r"
"""Characters that are escaped at both ends of a value."""


class UnreadableCertificate(ValueError):
    """Bytes that do not hold a certificate."""


def distinguished_name(der: bytes) -> str:
    """Return the subject of a certificate in DER, such as `CN=alice,OU=Unit,C=DE`. UnreadableCertificate."""
    from cryptography import x509

    try:
        return name_text(x509.load_der_x509_certificate(der).subject)
    except ValueError as error:
        raise UnreadableCertificate(f"the certificate cannot be read: {error}") from error


def name_text(name: x509.Name) -> str:
    """Return the text of a name."""
    return ",".join("+".join(map(_attribute, part)) for part in reversed(name.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    oid = attribute.oid.dotted_string
    if oid not in _KEYWORDS or isinstance(attribute.value, bytes):
        return f"{_KEYWORDS.get(oid, oid)}=#{_value_der(attribute).hex()}"
    value = attribute.value.translate(_ESCAPED)
    leading = len(value) - len(value.lstrip(_BLANKS))
    trailing = len(value.rstrip(_BLANKS))
    ends = [f"\\{char}" if place < leading or place >= trailing else char for place, char in enumerate(value)]
    return f"{_KEYWORDS[oid]}={''.join(ends)}"


def _value_der(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """Return the DER bytes of an attribute's value: what follows the OID in a name that has this attribute alone."""
    from cryptography import x509

    inner = x509.Name([attribute]).public_bytes()
    for _ in ("name", "part", "attribute"):
        inner = _split(inner)[0]
    return _split(inner)[1]


def _split(der: bytes) -> tuple[bytes, bytes]:
    """Return the content of the first element of DER bytes, and the bytes after it."""
    length, start = der[1], 2
    if length >= 0x80:
        start += length - 0x80
        length = int.from_bytes(der[2:start], "big")
    return der[start : start + length], der[start + length :]
