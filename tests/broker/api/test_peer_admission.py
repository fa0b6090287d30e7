"""Admission to a broker's PEER port: with an authorizer, peers need the rights of callers, and followers are known brokers."""

from __future__ import annotations

import pytest

from kraftlab.access.authorizer import AccessSettings, Authorizer
from kraftlab.broker.api.peer_admission import PeerAdmission
from kraftlab.common.errors import ErrorCode
from kraftlab.common.replica_key import ReplicaKey
from kraftlab.metadata.acls import Operation
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, Provenance
from kraftlab.metadata.peer_rpc import Api, ReplicaFetchRequest
from kraftlab.metadata.records import Listener, RegisterBroker, Topic
from kraftlab.wire.transport import PeerError, PeerRequest

TOPIC_ID, BROKER, STRANGER = b"t" * 16, 0, 77
GUARDED = AccessSettings(is_enabled=True)
OPEN_WITHOUT_RULES = AccessSettings(is_enabled=True, allows_if_no_rules=True)


def admission(settings: AccessSettings, *, is_loaded: bool = True) -> PeerAdmission:
    delta = MetadataDelta(EMPTY)
    listeners = (Listener("PEER", "host", 1),)
    delta.replay_all((RegisterBroker(0, BROKER, bytes(16), 1, listeners, log_dirs=(b"d" * 16,)), Topic(0, "orders", TOPIC_ID)), 1)
    image = delta.apply(Provenance(3, 1, 0))
    return PeerAdmission(Authorizer(settings), lambda: image if is_loaded else EMPTY)


def asked(sender: int = -1, api: int = Api.PRODUCE) -> PeerRequest:
    return PeerRequest(api, 0, ReplicaKey(sender), memoryview(b""), "User:ANONYMOUS", "[::1]:5")


def code_of(refused: pytest.ExceptionInfo[PeerError]) -> int:
    return refused.value.code


def test_without_an_authorizer_everybody_may_do_everything() -> None:
    of_all = admission(AccessSettings())
    of_all.check_topics(asked(), Operation.WRITE, (TOPIC_ID,))
    of_all.check_cluster(asked(), Operation.DESCRIBE)
    of_all.check_broker(asked(STRANGER))


def test_a_caller_needs_the_right_to_each_topic_that_exists() -> None:
    with pytest.raises(PeerError, match="User:ANONYMOUS has no right to WRITE on topic orders") as refused:
        admission(GUARDED).check_topics(asked(), Operation.WRITE, (bytes(16), TOPIC_ID))
    assert code_of(refused) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    admission(GUARDED).check_topics(asked(), Operation.WRITE, (bytes(16),))
    admission(OPEN_WITHOUT_RULES).check_topics(asked(), Operation.WRITE, (TOPIC_ID,))


def test_digests_need_a_right_to_the_cluster() -> None:
    with pytest.raises(PeerError, match="DESCRIBE on the cluster") as refused:
        admission(GUARDED).check_cluster(asked(), Operation.DESCRIBE)
    assert code_of(refused) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_follower_is_a_broker_that_is_registered_and_speaks_for_itself() -> None:
    guarded = admission(GUARDED)
    guarded.check_broker(asked(BROKER, Api.REPLICA_FETCH))
    with pytest.raises(PeerError, match="node 77 is not a broker"):
        guarded.check_broker(asked(STRANGER, Api.REPLICA_FETCH))
    with pytest.raises(PeerError, match="names node 0, but node 77 sends it"):
        guarded.check_sender(asked(STRANGER, Api.REPLICA_FETCH), ReplicaFetchRequest(BROKER, 1, 0, 0, 1, ()))


def test_before_the_rules_are_known_callers_are_asked_to_try_again() -> None:
    with pytest.raises(PeerError) as refused:
        admission(OPEN_WITHOUT_RULES, is_loaded=False).check_topics(asked(), Operation.WRITE, (TOPIC_ID,))
    assert code_of(refused) == ErrorCode.BROKER_NOT_AVAILABLE
