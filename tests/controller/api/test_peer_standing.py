"""Standing of peers at a controller's port: registered controllers may stand, and with an authorizer strangers do not read."""

from __future__ import annotations

import msgspec
import pytest

from kraftlab.access.authorizer import AccessSettings, Authorizer
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.controller.api.peer_standing import standing_of
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.records import FeatureLevel, Listener, RegisterBroker, RegisterController
from kraftlab.quorum.core.types import Standing
from kraftlab.wire.transport import PeerRequest

CONTROLLER, BROKER, STRANGER, NOBODY = 3000, 0, 77, -1
"""Node ids."""
OPEN = AccessSettings()
GUARDED = AccessSettings(is_enabled=True)
FOR_ALL = AccessSettings(is_enabled=True, super_users=frozenset({"User:ANONYMOUS"}))


def asked(node_id: int) -> PeerRequest:
    return PeerRequest(1, 0, ReplicaKey(node_id), memoryview(b""), "User:ANONYMOUS", "127.0.0.1:5")


@pytest.fixture(scope="module")
def image() -> MetadataImage:
    """A cluster with one registered controller and one broker."""
    listeners = (Listener("L", "host", 1),)
    records = (
        FeatureLevel(0, "metadata.version", 20),
        RegisterController(0, CONTROLLER, bytes(16), listeners, ()),
        RegisterBroker(0, BROKER, bytes(16), 1, listeners, (), None, True, False, (b"d" * 16,)),
    )
    delta = MetadataDelta(EMPTY)
    delta.replay_all(records, 1)
    return delta.apply(Provenance(4, 1, 0))


@pytest.mark.parametrize(
    ("settings", "node_id", "standing"),
    [
        (OPEN, CONTROLLER, Standing.CONTROLLER),
        (OPEN, BROKER, Standing.OBSERVER),
        (OPEN, STRANGER, Standing.OBSERVER),
        (OPEN, NOBODY, Standing.OBSERVER),
        (GUARDED, CONTROLLER, Standing.CONTROLLER),
        (GUARDED, BROKER, Standing.OBSERVER),
        (GUARDED, STRANGER, Standing.STRANGER),
        (GUARDED, NOBODY, Standing.STRANGER),
        (FOR_ALL, NOBODY, Standing.OBSERVER),
    ],
)
def test_the_standing_of_each_sender(image: MetadataImage, settings: AccessSettings, node_id: int, standing: Standing) -> None:
    assert standing_of(asked(node_id), image, True, Authorizer(settings)) is standing


def test_strangers_wait_until_the_rules_are_known(image: MetadataImage) -> None:
    allows = msgspec.structs.replace(GUARDED, allows_if_no_rules=True)
    assert standing_of(asked(NOBODY), image, True, Authorizer(allows)) is Standing.OBSERVER
    assert standing_of(asked(NOBODY), image, False, Authorizer(allows)) is Standing.STRANGER


def test_nodes_read_where_controllers_can_not_register() -> None:
    assert standing_of(asked(STRANGER), EMPTY, True, Authorizer(GUARDED)) is Standing.OBSERVER
    assert standing_of(asked(NOBODY), EMPTY, True, Authorizer(GUARDED)) is Standing.STRANGER
