"""Logins at the listeners of a node, by their configuration and the SCRAM credentials in the metadata."""

from __future__ import annotations

import functools
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kraftlab.access.logins import SaslLogin
from kraftlab.access.sasl.exchange import Mechanism, NotLoaded
from kraftlab.access.sasl.mechanisms import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from kraftlab.access.sasl.plain import Plain
from kraftlab.access.sasl.scram import Lookup, Scram
from kraftlab.config.config_key import split_list
from kraftlab.config.errors import ConfigError
from kraftlab.config.listener_security import SaslConfig
from kraftlab.config.meta_properties import write_durably
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.scram import ScramCredential, ScramMechanism

if TYPE_CHECKING:  # what judges tokens is loaded by listeners that take some
    from kraftlab.access.sasl.oauthbearer import KeySet, OAuthBearer

logger = logging.getLogger("kraftlab.tls")

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


class TokenKeys:
    """The key set of a listener's tokens, from its file. ConfigError if it cannot be used."""

    def __init__(self, url: str, listener: str) -> None:
        from kraftlab.access.sasl import oauthbearer

        self._name = f"listener {listener}: sasl.oauthbearer.jwks.endpoint.url"
        try:
            self._path = oauthbearer.jwks_path(url)
            self._keys = oauthbearer.load(self._path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._name}: {error}") from error

    def present(self) -> KeySet:
        return self._keys

    def look(self) -> None:
        """Load the file again if it has changed. Reads the disk."""
        from kraftlab.access.sasl import oauthbearer

        try:
            if oauthbearer.changed(self._path, self._keys):
                self._keys = oauthbearer.load(self._path)
                logger.info("%s: the key set was loaded again", self._name)
        except (OSError, ValueError) as error:
            logger.error("%s: the keys stay as they are: %s", self._name, error)


class Logins:
    """Logins of one listener, by the credentials of the metadata. ConfigError, OSError for files that cannot be used."""

    def __init__(self, listener: str, config: SaslConfig, credential_of: Lookup, metadata_dir: Path) -> None:
        self._config = config
        self._credential_of = credential_of
        self._metadata_dir = metadata_dir
        self.token_keys: TokenKeys | None = None
        self._bearer: Callable[[], OAuthBearer] | None = None
        if OAUTHBEARER in config.mechanisms:
            from kraftlab.access.sasl.oauthbearer import OAuthBearer, TokenRules

            values = {name.removeprefix("sasl.oauthbearer."): value for name, value in config.oauthbearer.items()}
            rules = TokenRules(
                split_list(values["expected.audience"]),
                values["expected.issuer"] or None,
                values["sub.claim.name"],
                values["scope.claim.name"],
                float(values["clock.skew.seconds"]),
            )
            self.token_keys = TokenKeys(values["jwks.endpoint.url"], listener)
            self._bearer = functools.partial(OAuthBearer, rules, self.token_keys.present)

    def mechanisms(self) -> dict[str, Mechanism]:
        """Return the mechanisms by name."""
        return {name: self._made(name) for name in self._config.mechanisms}

    def grpc(self) -> SaslLogin:
        """Return the same logins for gRPC."""
        scram = [_SCRAM[name] for name in self._config.mechanisms if name in _SCRAM]
        name_of_token = None if self._bearer is None else self._bearer().name_of
        return SaslLogin(self._config.passwords, scram, self._credential_of, name_of_token)

    def _made(self, name: str) -> Mechanism:
        if name == PLAIN:
            return functools.partial(Plain, self._config.passwords)
        if name == OAUTHBEARER:
            assert self._bearer is not None
            return self._bearer
        return functools.partial(Scram, _SCRAM[name], self._credential_of, scram_secret(self._metadata_dir))


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
