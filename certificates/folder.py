"""The folder of a certificate authority.

    ca.pem         the authority's certificate: the truststore of nodes and clients; not secret
    ca.key         its key, for the owner only: with it, one can become any node and any user
    broker-3.pem   key and certificate of a node or user, in one PEM file, as ssl.keystore.location takes it; for the owner only
    alice.p12      the same as a PKCS12 store, for Java

Each file is written whole or not at all, so that a node that reads its keystore never finds a key and the certificate of another.
A file is replaced only by `renew`, or if the caller says so.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kraftlab.config.errors import ConfigError
from kraftlab.config.meta_properties import write_durably

from . import authority
from .authority import AUTHORITY_DAYS, AUTHORITY_NAME, CERTIFICATE_DAYS, Identity
from .stores import KeyMaterial, pem_certificates, pem_key, pkcs12_content, read

AUTHORITY = "ca"
AUTHORITY_CERTIFICATE = "ca.pem"
AUTHORITY_KEY = "ca.key"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
PUBLIC_FILE = 0o644
"""Mode of the authority's certificate, which is copied to every client."""
_UNSAFE = set("/\\\0")
"""Characters of a name that cannot be in a file's name."""


def create_authority(folder: Path, name: str = AUTHORITY_NAME, days: int = AUTHORITY_DAYS, *, replace: bool = False) -> Path:
    """Create an authority and return the path of its certificate. ConfigError if the folder has one already; OSError."""
    for path in (folder / AUTHORITY_KEY, folder / AUTHORITY_CERTIFICATE):
        _check_free(path, replace)
    created = authority.create_authority(_now(), name, days)
    return _write_authority(folder, created)


def issue(
    folder: Path,
    name: str,
    hosts: Sequence[str] = (),
    days: int = CERTIFICATE_DAYS,
    *,
    password: str | None = None,
    as_pkcs12: bool = False,
    replace: bool = False,
) -> Path:
    """Issue a certificate and return the path of the file with its key. A name such as `broker-3` is a node's, any other a
    user's. With a password the key is encrypted; a PKCS12 store needs one. ConfigError, OSError.
    """
    if _UNSAFE & set(name) or name.startswith(".") or name == AUTHORITY:
        raise ConfigError(f"{name!r} cannot be the name of a file here; choose another user name")
    path = folder / f"{name}.{'p12' if as_pkcs12 else 'pem'}"
    _check_free(path, replace)
    by = open_authority(folder)
    if authority.is_node(name):
        identity = authority.issue_node(by, name, hosts or local_hosts(), _now(), days)
    else:
        identity = authority.issue_user(by, name, _now(), days)
    write_durably(path, _content(identity, name, by, password, as_pkcs12))
    return path


def renew(path: Path, folder: Path | None = None, days: int | None = None, *, password: str | None = None) -> x509.Certificate:
    """Replace a certificate by one with the same names, a new key and a later end, and return it. An authority's certificate
    keeps its key. `folder` is the authority's, by default that of the file. ConfigError, OSError.
    """
    folder = folder or path.parent
    by = open_authority(folder)
    material = read_identity(path, password)
    if material.certificate.subject == by.certificate.subject:
        renewed = authority.renew_authority(by, _now(), days or AUTHORITY_DAYS)
        _write_authority(folder, renewed)
        return renewed.certificate
    if not is_issued_by(material.certificate, by.certificate):
        issuer = material.certificate.issuer.rfc4514_string()
        raise ConfigError(f"{path} was issued by {issuer}, which is not the authority in {folder}; give its --directory")
    identity = authority.renew(by, material.certificate, _now(), days or CERTIFICATE_DAYS)
    write_durably(path, _content(identity, path.stem, by, password, path.suffix == ".p12"))
    return identity.certificate


def throw_away(folder: Path, nodes: Iterable[str], users: Iterable[str] = (), hosts: Sequence[str] = ()) -> dict[str, Path]:
    """Make an authority, and certificates of nodes and users that it issues; return the path by name, `ca` for the authority's
    certificate. Files that exist stay: a cluster that starts again keeps its certificates. ConfigError, OSError.

    For clusters that are removed as a whole: all certificates are valid as long as the authority, and its key is in the folder.
    """
    paths = {AUTHORITY: folder / AUTHORITY_CERTIFICATE}
    is_new = not (folder / AUTHORITY_KEY).exists()
    if is_new:
        create_authority(folder, replace=True)
    for name in (*nodes, *users):
        paths[name] = folder / f"{name}.pem"
        if is_new or not paths[name].exists():
            issue(folder, name, hosts, AUTHORITY_DAYS, replace=True)
    return paths


def open_authority(folder: Path) -> Identity:
    """Return the authority of a folder. ConfigError."""
    key_path, path = folder / AUTHORITY_KEY, folder / AUTHORITY_CERTIFICATE
    if not key_path.exists() or not path.exists():
        missing = path if key_path.exists() else key_path
        raise ConfigError(
            f"there is no {missing}; create an authority: kraftlab certificates create-ca --directory {folder}, or give the "
            "--directory of one"
        )
    key = pem_key(read(key_path), None, str(key_path))
    certificate = pem_certificates(read(path), str(path))[0]
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not KeyMaterial(key, (certificate,)).key_fits:
        raise ConfigError(f"{key_path} is not the key of {path}; restore the two files that belong together")
    return Identity(key, certificate)


def read_identity(path: Path, password: str | None) -> KeyMaterial:
    """Return the key and the certificate in a file of this folder. The key of an authority is in another file. ConfigError."""
    if path.name == AUTHORITY_CERTIFICATE:
        identity = open_authority(path.parent)
        return KeyMaterial(identity.key, (identity.certificate,))
    data = read(path)
    if path.suffix == ".p12":
        material = pkcs12_content(data, password, str(path))[0]
        if material is None:
            raise ConfigError(f"{path} has no private key; give the file of a node or a user")
        return material
    return KeyMaterial(pem_key(data, password, str(path)), pem_certificates(data, str(path)))


def read_certificates(path: Path, password: str | None) -> tuple[x509.Certificate, ...]:
    """Return the certificates in a file. ConfigError."""
    data = read(path)
    if b"-----BEGIN " in data:
        return pem_certificates(data, str(path))
    material, others = pkcs12_content(data, password, str(path))
    return (material.certificate, *others) if material else others


def is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Return True if the issuer has signed the certificate."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # of several kinds, each of which says no
        return False
    return True


def local_hosts() -> list[str]:
    """Return the names under which this machine's own clients reach it."""
    return list(dict.fromkeys((*LOCAL_HOSTS, socket.gethostname())))


def _content(identity: Identity, name: str, by: Identity, password: str | None, as_pkcs12: bool) -> bytes:
    if not as_pkcs12:
        return identity.pem(password)
    if not password:
        raise ConfigError("a PKCS12 store needs a password; give --password-file FILE, or - for standard input")
    return identity.pkcs12(name, by.certificate, password)


def _write_authority(folder: Path, created: Identity) -> Path:
    """Write the key first: without a certificate beside it, it is of no use, and `open_authority` says so."""
    key = created.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_durably(folder / AUTHORITY_KEY, key)
    write_durably(folder / AUTHORITY_CERTIFICATE, created.certificate.public_bytes(Encoding.PEM), PUBLIC_FILE)
    return folder / AUTHORITY_CERTIFICATE


def _check_free(path: Path, replace: bool) -> None:
    if path.exists() and not replace:
        raise ConfigError(f"{path} exists; choose another --directory, or add --force to replace it")


def _now() -> datetime:
    return datetime.now(UTC)
