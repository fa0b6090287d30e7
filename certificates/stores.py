"""Keys and certificates out of files and properties: PEM (KIP-651) and PKCS12.

Functions take the bytes, and a name for them that errors begin with; they raise ConfigError with the next step. No error and
no `repr` shows a key or a password. Java's own format JKS has no well-kept reader outside of Java: it is refused with the command
that converts it.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    pkcs12,
)

from kraftlab.config.errors import ConfigError
from kraftlab.config.regular_files import OddFile, read_regular

BYTES_MAX = 1 << 20
_MAGIC = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_KINDS = ((x509.DNSName, "DNS"), (x509.IPAddress, "IP"), (x509.RFC822Name, "email"), (x509.UniformResourceIdentifier, "URI"))
_KEY_BLOCKS = ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY")


@dataclass(frozen=True)
class KeyMaterial:
    """A private key, and its certificate with those of the authorities between it and a root."""

    key: PrivateKeyTypes = field(repr=False)
    chain: tuple[x509.Certificate, ...]

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]

    @property
    def key_pem(self) -> bytes:
        """The key, not encrypted: for libraries that take keys in memory."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def chain_pem(self) -> bytes:
        return b"".join(each.public_bytes(Encoding.PEM) for each in self.chain)

    @property
    def key_fits(self) -> bool:
        """True if the certificate is of this key."""
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return self.key.public_key().public_bytes(*form) == self.certificate.public_key().public_bytes(*form)


def read(path: Path) -> bytes:
    """Return the bytes of a file. ConfigError."""
    try:
        return read_regular(path, BYTES_MAX)
    except OddFile as error:
        raise ConfigError(f"cannot read {path}: it is {error}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check the path and its permissions") from error


def pem_key(text: bytes, password: str | None, name: str) -> PrivateKeyTypes:
    """Return the first private key of a PEM text. ConfigError."""
    kind, der = next(((kind, der) for kind, der in _blocks(text, name) if kind in _KEY_BLOCKS), ("", b""))
    if not kind:
        raise ConfigError(f"{name} has no private key; expected a block -----BEGIN PRIVATE KEY----- in PEM")
    is_encrypted = kind == "ENCRYPTED PRIVATE KEY"
    if is_encrypted and not password:
        raise ConfigError(f"{name} has an encrypted private key; set ssl.key.password")
    try:
        return load_der_private_key(der, password.encode() if is_encrypted and password else None)
    except (ValueError, TypeError) as error:
        if is_encrypted:
            raise ConfigError(f"{name} has a private key that ssl.key.password does not open; correct the password") from None
        raise ConfigError(f"{name} has a private key that cannot be read: {_short(error)}; write it as PKCS#8 in PEM") from None
    except Exception as error:  # UnsupportedAlgorithm, for example
        raise ConfigError(f"{name} has a private key of a kind that is not supported: {_short(error)}") from None


def pem_certificates(text: bytes, name: str) -> tuple[x509.Certificate, ...]:
    """Return all certificates of a PEM text, in order. ConfigError if there is none."""
    try:
        found = tuple(x509.load_der_x509_certificate(der) for kind, der in _blocks(text, name) if kind == "CERTIFICATE")
    except ValueError as error:
        raise ConfigError(f"{name} has a certificate that cannot be read: {_short(error)}; issue it again") from None
    if not found:
        raise ConfigError(f"{name} has no certificate; expected a block -----BEGIN CERTIFICATE----- in PEM")
    return found


def pkcs12_content(data: bytes, password: str | None, name: str) -> tuple[KeyMaterial | None, tuple[x509.Certificate, ...]]:
    """Return the key with its chain, if any, and all other certificates of a PKCS12 store. ConfigError."""
    try:
        store = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError:
        if data[:1] != b"\x30":
            raise ConfigError(f"{name} is not a PKCS12 store; correct its location or its type") from None
        how = "with this password" if password else "without a password"
        raise ConfigError(f"{name} cannot be opened {how}; give the store's password, or write it again as PKCS12") from None
    others = tuple(each.certificate for each in store.additional_certs)
    if store.key is None or store.cert is None:
        return None, others if store.cert is None else (store.cert.certificate, *others)
    return KeyMaterial(store.key, _chain(store.cert.certificate, others)), others


def refuse_other_format(data: bytes, kind: str, key: str, location: str, name: str) -> None:
    """Raise ConfigError for a store that is not of the type in `KEY.type`, or of one that is not supported. `key` is
    `ssl.keystore` or `ssl.truststore`.
    """
    found = _MAGIC.get(data[:4]) or ("PEM" if b"-----BEGIN " in data else "PKCS12" if data[:1] == b"\x30" else "")
    if found in _MAGIC.values():
        raise ConfigError(
            f"{name} is a {found} store, which only Java reads; convert it: keytool -importkeystore -srckeystore {location} "
            f"-srcstoretype {found} -destkeystore {location}.p12 -deststoretype PKCS12, then set {key}.location={location}.p12 "
            f"and {key}.type=PKCS12"
        )
    if not found:
        raise ConfigError(f"{name} is neither PEM nor PKCS12; correct {key}.location, or write the file again")
    if found != kind:
        raise ConfigError(f"{name} is {found}, but {key}.type is {kind}; set {key}.type={found}")


def alternative_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the subject alternative names, such as `DNS:localhost` and `IP:127.0.0.1`."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(f"{next((kind for known, kind in _KINDS if isinstance(name, known)), 'other')}:{name.value}" for name in found)


def _chain(certificate: x509.Certificate, others: tuple[x509.Certificate, ...]) -> tuple[x509.Certificate, ...]:
    """Return the certificate and its issuers among the others, without a root, which nobody takes from the other side."""
    chain = [certificate]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in others if each.subject == chain[-1].issuer and each not in chain), None)
        if issuer is None or issuer.issuer == issuer.subject:
            break
        chain.append(issuer)
    return tuple(chain)


def _blocks(text: bytes, name: str) -> list[tuple[str, bytes]]:
    """Return the kind and the DER bytes of each PEM block. Blanks may stand for line breaks, as in properties."""
    blocks = _BLOCK.findall(text.decode("utf-8", errors="replace"))
    try:
        return [(kind, base64.b64decode("".join(body.split()), validate=True)) for kind, body in blocks]
    except (binascii.Error, ValueError):
        if "Proc-Type:" in text.decode("utf-8", errors="replace"):
            raise ConfigError(
                f"{name} has a private key in OpenSSL's old encrypted form; convert it: openssl pkcs8 -topk8 -in OLD -out NEW"
            ) from None
        raise ConfigError(f"{name} has a PEM block that is not base64; copy the file again") from None


def _short(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
