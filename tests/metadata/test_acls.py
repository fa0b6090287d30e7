"""ACLs and SCRAM credentials in the image: by record, by id, and records that do not fit."""

from __future__ import annotations

import immutables
import pytest

from kraftlab.metadata.acls import Acl, AclsImage
from kraftlab.metadata.changes import changes_between
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage
from kraftlab.metadata.records import (
    AccessControlEntry,
    AnyRecord,
    RemoveAccessControlEntry,
    RemoveUserScramCredential,
    UserScramCredential,
)
from kraftlab.metadata.replay_error import ReplayError
from kraftlab.metadata.scram import ScramCredential
from kraftlab.metadata.snapshot import image_records

ONE, OTHER = bytes([1]) * 16, bytes([2]) * 16
RULE = Acl(2, "orders", 3, "User:alice", "*", 3, 3)
CREDENTIAL = UserScramCredential(0, "alice", 1, b"salt", b"stored", b"server", 4096)


def after(image: MetadataImage, *records: AnyRecord) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(records, 0)
    return delta.apply(EMPTY.provenance)


def test_an_acl_is_found_by_its_id_and_by_its_content() -> None:
    acls = after(EMPTY, AccessControlEntry(0, ONE, *RULE)).acls
    assert (acls.by_id[ONE], acls.ids[RULE]) == (RULE, ONE)


def test_a_removed_rule_can_come_back_under_another_id_in_the_same_batch() -> None:
    image = after(EMPTY, AccessControlEntry(0, ONE, *RULE))
    again = after(image, RemoveAccessControlEntry(0, ONE), AccessControlEntry(0, OTHER, *RULE)).acls
    assert again == AclsImage().after({OTHER: RULE})
    assert (again.by_id, again.ids) == (immutables.Map({OTHER: RULE}), immutables.Map({RULE: OTHER}))


def test_a_rule_that_came_and_went_in_one_batch_leaves_nothing() -> None:
    assert after(EMPTY, AccessControlEntry(0, ONE, *RULE), RemoveAccessControlEntry(0, ONE)).acls == AclsImage()


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([RemoveAccessControlEntry(0, ONE)], "no ACL with id"),
        ([AccessControlEntry(0, ONE, *RULE), AccessControlEntry(0, ONE, *RULE)], "with this id exists"),
        ([AccessControlEntry(0, ONE, *RULE), AccessControlEntry(0, OTHER, *RULE)], "is equal"),
        ([RemoveUserScramCredential(0, "alice", 1)], "alice has no credential of mechanism 1"),
        ([CREDENTIAL, RemoveUserScramCredential(0, "alice", 2)], "no credential of mechanism 2"),
    ],
)
def test_records_that_do_not_fit_stop_the_node(records: list[AnyRecord], reason: str) -> None:
    with pytest.raises(ReplayError, match=reason):
        after(EMPTY, *records)


def test_a_credential_replaces_the_one_before_and_is_removed() -> None:
    image = after(EMPTY, CREDENTIAL, UserScramCredential(0, "alice", 1, b"s", b"t", b"u", 5000))
    assert image.scram == immutables.Map({("alice", 1): ScramCredential(b"s", b"t", b"u", 5000)})
    assert after(image, RemoveUserScramCredential(0, "alice", 1)).scram == immutables.Map()


def test_secrets_are_not_shown() -> None:
    assert repr(CREDENTIAL) == "UserScramCredential(name=alice mechanism=1 iterations=4096)"
    assert repr(after(EMPTY, CREDENTIAL).scram["alice", 1]) == "ScramCredential(iterations=4096)"


def test_a_delta_says_which_rules_and_credentials_changed() -> None:
    records: list[AnyRecord] = [AccessControlEntry(0, ONE, *RULE), CREDENTIAL]
    delta = MetadataDelta(EMPTY)
    delta.replay_all(records, 0)
    changes = delta.changes()
    assert (changes.acls, changes.scram) == ({ONE}, {("alice", 1)})
    compared = changes_between(EMPTY, after(EMPTY, *records))
    assert (compared.acls, compared.scram) == ({ONE}, {("alice", 1)})


def test_a_snapshot_sorts_acls_by_their_content() -> None:
    other = RULE._replace(resource_name="alpha")
    image = after(EMPTY, AccessControlEntry(0, ONE, *RULE), AccessControlEntry(0, OTHER, *other))
    assert list(image_records(image)) == [AccessControlEntry(0, OTHER, *other), AccessControlEntry(0, ONE, *RULE)]
