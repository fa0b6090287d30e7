"""Logins of a node by its metadata."""

from __future__ import annotations

import immutables
import msgspec
import pytest

from kraftlab.access.sasl.exchange import Challenge, NotLoaded
from kraftlab.config.listener_security import SaslConfig
from kraftlab.metadata.image import MetadataImage, Provenance
from kraftlab.metadata.scram import ScramCredential, ScramMechanism
from kraftlab.node.logins import Credentials, Logins

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
ALICE = ScramCredential(b"salt of alice", b"s" * 32, b"k" * 32, 8192)
CONFIG = SaslConfig(("SCRAM-SHA-256",), {}, {}, 1000, {})


def image(**users: ScramCredential) -> MetadataImage:
    scram = immutables.Map({(name, int(SHA_256)): credential for name, credential in users.items()})
    return msgspec.structs.replace(MetadataImage(), provenance=Provenance(5, 1, 0), scram=scram)


def challenge(metadata: MetadataImage, name: str) -> str:
    """The salt and the iterations that a user is told, the same for the same nonces but for its random part."""
    exchange = Logins("KAFKA", CONFIG, Credentials(lambda: metadata)).mechanisms()["SCRAM-SHA-256"]()
    result = exchange.step(f"n,,n={name},r=abc".encode())
    assert isinstance(result, Challenge)
    return result.token.decode().partition(",")[2]


def test_a_credential_is_that_of_the_present_image() -> None:
    images = [MetadataImage()]
    credentials = Credentials(lambda: images[-1])
    with pytest.raises(NotLoaded):
        credentials.find("alice", SHA_256)
    images.append(image(alice=ALICE))
    assert credentials.find("alice", SHA_256) == ALICE
    assert credentials.find("alice", SHA_512) is None
    images.append(image())
    assert credentials.find("alice", SHA_256) is None


def test_unknown_users_have_the_same_salt_on_every_node_and_none_has_that_of_another() -> None:
    """Otherwise two nodes that are asked tell which names are unknown."""
    here, there = image(alice=ALICE), image(alice=ALICE)
    assert challenge(here, "nobody") == challenge(there, "nobody") != challenge(here, "nobody2")
    assert challenge(here, "alice") == "s=c2FsdCBvZiBhbGljZQ==,i=8192"


def test_the_salts_of_unknown_users_cannot_be_computed_without_the_metadata() -> None:
    other = msgspec.structs.replace(ALICE, server_key=b"x" * 32)
    assert challenge(image(alice=ALICE), "nobody") != challenge(image(alice=other), "nobody")


def test_logins_work_without_any_user() -> None:
    assert challenge(image(), "nobody")
