"""Logins at the listeners of a node, by their configuration and the SCRAM credentials in the metadata."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftlab.access.logins import SaslLogin
from kraftlab.access.sasl.exchange import Mechanism, NotLoaded
from kraftlab.access.sasl.mechanisms import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from kraftlab.access.sasl.plain import Plain
from kraftlab.access.sasl.scram import Scram
from kraftlab.config.config_key import split_list
from kraftlab.config.errors import ConfigError
from kraftlab.config.listener_security import SaslConfig
from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.scram import ScramCredential, ScramImage, ScramMechanism

if TYPE_CHECKING:  # what judges tokens is loaded by listeners that take some
    from kraftlab.access.sasl.oauthbearer import KeySet, OAuthBearer

logger = logging.getLogger("kraftlab.tls")

_SCRAM = {SCRAM_SHA_256: ScramMechanism.SCRAM_SHA_256, SCRAM_SHA_512: ScramMechanism.SCRAM_SHA_512}


class Credentials:
    """The SCRAM credentials in the present image of the metadata."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._secret: tuple[ScramImage | None, bytes] = None, b""

    def find(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return a user's credential. NotLoaded before the first image."""
        present = self._image()
        if present.provenance.offset <= 0:
            raise NotLoaded
        return present.scram.get((name, mechanism))

    def secret(self) -> bytes:
        """Return the secret that makes the salts of unknown users: a key of the first user, which all nodes have and nobody else.
        Where no user is known, none can be told apart.
        """
        scram = self._image().scram
        if self._secret[0] is not scram:
            self._secret = scram, min(scram.items())[1].server_key if scram else b"nobody"
        return self._secret[1]


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
    """Logins of one listener, by the credentials of the metadata. ConfigError for a file that cannot be used."""

    def __init__(self, listener: str, config: SaslConfig, credentials: Credentials) -> None:
        self._config = config
        self._credentials = credentials
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
        return SaslLogin(self._config.passwords, scram, self._credentials.find, name_of_token)

    def _made(self, name: str) -> Mechanism:
        if name == PLAIN:
            return functools.partial(Plain, self._config.passwords)
        if name == OAUTHBEARER:
            assert self._bearer is not None
            return self._bearer
        return lambda: Scram(_SCRAM[name], self._credentials.find, self._credentials.secret())
