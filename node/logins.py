"""Logins at the listeners of a node, by their configuration and the SCRAM credentials in the metadata."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kraftlab.access.logins import CertificateLogin, Login, SaslLogin, UserLogin
from kraftlab.access.sasl.exchange import Mechanism, NotLoaded
from kraftlab.access.sasl.mechanisms import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from kraftlab.access.sasl.plain import Plain
from kraftlab.access.sasl.scram import Lookup, Scram
from kraftlab.access.users import Users
from kraftlab.config.listener_security import ListenerSecurity, SaslConfig
from kraftlab.config.meta_properties import write_durably
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.scram import ScramCredential, ScramMechanism

if TYPE_CHECKING:  # a node without TLS does not load what reads certificates
    from .listener_tls import ListenerTls

SECRET_FILE = "scram.secret"
SECRET_BYTES = 32
_SCRAM = {SCRAM_SHA_256: ScramMechanism.SCRAM_SHA_256, SCRAM_SHA_512: ScramMechanism.SCRAM_SHA_512}


def credentials_of(image: Callable[[], MetadataImage]) -> Lookup:
    """Return a function that looks up a user's credential in the present image. NotLoaded before the first one."""

    def credential_of(name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        present = image()
        if present.provenance.offset <= 0:
            raise NotLoaded
        return present.scram.get((name, mechanism))

    return credential_of


def sasl_mechanisms(config: SaslConfig, credential_of: Lookup, metadata_dir: Path) -> dict[str, Mechanism]:
    """Return the mechanisms of a listener by name. OSError for the file of the secret."""
    secret = scram_secret(metadata_dir)

    def made(name: str) -> Mechanism:
        if name == PLAIN:
            return functools.partial(Plain, config.passwords)
        if name == OAUTHBEARER:
            raise NotImplementedError
        return functools.partial(Scram, _SCRAM[name], credential_of, secret)

    return {name: made(name) for name in config.mechanisms}


def grpc_login(security: ListenerSecurity, users: Users, tls: ListenerTls | None, credential_of: Lookup) -> Login:
    """Return the login of the admin API's listener. `users`: those of a plaintext one."""
    if security.sasl is not None:
        scram = [_SCRAM[name] for name in security.sasl.mechanisms if name in _SCRAM]
        return SaslLogin(security.sasl.passwords, scram, credential_of)
    return UserLogin(users) if tls is None else CertificateLogin(tls.principal_of)


def scram_secret(metadata_dir: Path) -> bytes:
    """Return the secret from which unknown users get their salt, and make it at the first start: it has to stay the same."""
    path = metadata_dir / SECRET_FILE
    try:
        held = path.read_bytes()
    except FileNotFoundError:
        held = b""
    if len(held) != SECRET_BYTES:
        held = secrets.token_bytes(SECRET_BYTES)
        write_durably(path, held)
    return held
