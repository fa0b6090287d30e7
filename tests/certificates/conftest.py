"""An authority with certificates of a node and a user, and settings that use them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlab.certificates import folder
from kraftlab.config.tls_settings import TlsSettings, tls_settings

Settings = Callable[..., TlsSettings]


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, broker-1.pem and alice.pem. Tests change no file in it."""
    path = tmp_path_factory.mktemp("pki")
    folder.throw_away(path, ["broker-1"], ["alice"], ["localhost", "127.0.0.1"])
    return path


@pytest.fixture(scope="session")
def other_pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of another authority."""
    path = tmp_path_factory.mktemp("other")
    folder.throw_away(path, ["broker-1"], ["alice"], ["localhost"])
    return path


@pytest.fixture
def settings(pki: Path) -> Settings:
    """Settings of a listener: `settings(client_auth="required", keystore_location=path)`. None removes a key."""

    def make(**changes: object) -> TlsSettings:
        values = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pki / "broker-1.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": pki / "ca.pem",
        } | {f"ssl.{name.replace('_', '.')}": value for name, value in changes.items()}
        return tls_settings({key: str(value) for key, value in values.items() if value is not None}, "listener KAFKA")

    return make
