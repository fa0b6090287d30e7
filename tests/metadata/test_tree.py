"""An image as a tree: it is complete, shows no secret, and its differences lead from one image to the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.metadata import image as image_module
from kraftlab.metadata.acls import AclsImage
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.difference import ABSENT, change_documents, change_lines, changes_of, image_differences
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance, TopicsImage
from kraftlab.metadata.record_text import record_document
from kraftlab.metadata.records import (
    AnyRecord,
    BeginTransaction,
    ClientQuota,
    Config,
    Partition,
    PartitionChange,
    Topic,
    UserScramCredential,
)
from kraftlab.metadata.snapshot import image_digest
from kraftlab.metadata.tree import Directory, Hidden, Node, image_tree, plain_document

History = list[AnyRecord]
TOPIC_ID = bytes([9]) * 16


def nothing_is_secret(resource_type: int, name: str) -> bool:
    return False


def after(records: History, image: MetadataImage = EMPTY) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(records, image.provenance.offset)
    return delta.apply(Provenance(image.provenance.offset + len(records), 1, 1000))


def tree(image: MetadataImage) -> Directory:
    return image_tree(image, nothing_is_secret)


def values(node: Node) -> Any:
    """The node, with hidden values as they are compared."""
    return {name: values(child) for name, child in node.items()} if isinstance(node, Directory) else node


def at(node: Node, *path: str) -> Node:
    for name in path:
        assert isinstance(node, Directory)
        node = node.get(name)
    return node


def comparable(image: MetadataImage) -> Any:
    """All nodes but the image's position; topics once."""
    found = values(tree(image))
    del found["provenance"], found["topics"]["byId"]
    return found


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), first=st.integers(10, 120), more=st.integers(0, 60))
def test_the_differences_of_two_images_put_into_one_give_the_other(
    history: Callable[[int, int], History], seed: int, first: int, more: int
) -> None:
    records = history(seed, first + more)
    before = after(records[:first])
    later = after(records[first:], before)
    for old, new in ((before, later), (later, before), (EMPTY, later)):
        patched = comparable(old)
        for path, _, node in image_differences(old, new, nothing_is_secret):
            *way, name = path
            place = patched
            for step in way:
                place = place[step]
            if node is ABSENT:
                del place[name]
            else:
                place[name] = values(node)  # type: ignore[arg-type]
        assert patched == comparable(new)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), cut=st.integers(10, 80), more=st.integers(0, 4))
def test_images_differ_exactly_if_their_snapshots_do(
    history: Callable[[int, int], History], seed: int, cut: int, more: int
) -> None:
    records = history(seed, cut + more)
    before, later = after(records[:cut]), after(records[: cut + more])
    if before.transaction is None and later.transaction is None:
        is_different = any(image_differences(before, later, nothing_is_secret))
        assert is_different == (image_digest(before) != image_digest(later))


@pytest.mark.parametrize("kind", [MetadataImage, image_module.ClusterImage, image_module.Provenance, image_module.PartitionImage])
def test_every_field_of_the_image_is_in_the_tree(kind: type[msgspec.Struct]) -> None:
    """A new field of the image has to be in the tree, or among the derived ones below."""
    image = after([Topic(0, "t", TOPIC_ID), Partition(0, 0, TOPIC_ID, (1,), (1,))])
    node = {
        MetadataImage: tree(image),
        image_module.ClusterImage: at(tree(image), "cluster"),
        image_module.Provenance: at(tree(image), "provenance"),
        image_module.PartitionImage: at(tree(image), "topics", "byName", "t", "0"),
    }[kind]
    assert isinstance(node, Directory)
    assert len(node.names()) == len(kind.__struct_fields__)


def test_only_fields_that_follow_from_others_are_left_out() -> None:
    from kraftlab.metadata.tree import DERIVED

    assert {
        (AclsImage, "ids"),
        (AclsImage, "permissions"),
        (AclsImage, "patterns"),
        (AclsImage, "prefix_lengths"),
        (TopicsImage, "by_name"),
        (TopicsImage, "reassigning"),
    } == DERIVED
    assert set(AclsImage.__struct_fields__) - {field for kind, field in DERIVED if kind is AclsImage} == {"by_id"}
    assert set(TopicsImage.__struct_fields__) == {"by_id", "by_name", "reassigning"}


def test_the_tree_has_the_names_that_people_know() -> None:
    image = after([Topic(0, "t", TOPIC_ID), Partition(0, 0, TOPIC_ID, (1, 2), (1,)), Config(0, 4, "", "k", "v")])
    names = tree(image).names()
    assert {"provenance", "features", "cluster", "topics", "configs", "clientQuotas", "producerIds", "acls", "scram"} <= {*names}
    assert plain_document(at(tree(image), "configs")) == {"BROKER": {"k": "v"}}
    assert at(tree(image), "topics", "byName", "t", "0", "replicas") == [1, 2]
    assert at(tree(image), "topics", "byId", "CQkJCQkJCQkJCQkJCQkJCQ", "name") == "t"


def test_each_quota_has_a_name_of_its_own_whatever_its_users_are_called() -> None:
    entities: list[tuple[tuple[str, str | None], ...]] = [
        (("client-id", "c"), ("user", "u")),
        (("client-id", "c,user=u"),),
        (("client-id", "c%2Cuser=u"),),
        (("user", None),),
        (("user", "<default>"),),
        (("user", "CN=kafka,O=lab/here"),),
    ]
    image = after([ClientQuota(0, entity, "producer_byte_rate", float(rate)) for rate, entity in enumerate(entities, 1)])
    assert plain_document(at(tree(image), "clientQuotas")) == {
        "client-id=c,user=u": {"producer_byte_rate": 1.0},
        "client-id=c%2Cuser=u": {"producer_byte_rate": 2.0},
        "client-id=c%252Cuser=u": {"producer_byte_rate": 3.0},
        "user=<default>": {"producer_byte_rate": 4.0},
        "user=%3Cdefault>": {"producer_byte_rate": 5.0},
        "user=CN=kafka%2CO=lab%2Fhere": {"producer_byte_rate": 6.0},
    }


def test_every_config_is_reached_by_a_path() -> None:
    image = after([Config(0, 4, "", "of/somebody", "1"), Config(0, 4, "", "secret/key", "2")])
    found = image_tree(image, lambda kind, name: name == "secret/key")
    assert plain_document(at(found, "configs", "BROKER")) == {"of%2Fsomebody": "1", "secret%2Fkey": "[hidden]"}
    assert at(found, "configs", "BROKER", "of%2Fsomebody") == "1"


def test_secrets_are_compared_and_not_shown() -> None:
    one = after([UserScramCredential(0, "bob", 1, b"pepper", b"hash", b"server", 4096), Config(0, 4, "", "secret", "a")])
    other = after([UserScramCredential(0, "bob", 1, b"pepper", b"else", b"server", 4096), Config(0, 4, "", "secret", "b")])
    lines = list(change_lines(changes_of(image_differences(one, other, lambda kind, name: name == "secret"))))
    assert lines == [
        "~ configs/BROKER  secret: [hidden] -> [hidden]",
        "~ scram/SCRAM-SHA-256/bob  storedKey: [hidden] -> [hidden]",
    ]
    shown = str(plain_document(image_tree(one, lambda kind, name: True)))
    assert not any(secret in shown for secret in ("pepper", "hash", "'a'"))


def test_a_change_reads_like_a_line_of_a_diff() -> None:
    before = after([Topic(0, "t", TOPIC_ID), Partition(0, 0, TOPIC_ID, (1, 2), (1, 2), leader=1)])
    later = after([PartitionChange(0, 0, TOPIC_ID, isr=(2,), leader=2), Config(0, 2, "t", "retention.ms", "7")], before)
    assert list(change_lines(changes_of(image_differences(before, later, nothing_is_secret)))) == [
        "~ topics/byName/t/0  isr: [1,2] -> [2]; leader: 1 -> 2; leaderEpoch: 0 -> 1; partitionEpoch: 0 -> 1",
        "+ configs/TOPIC:t  retention.ms=7",
    ]
    removed = list(change_documents(changes_of(image_differences(later, before, nothing_is_secret))))
    assert removed[1] == {
        "path": "configs/TOPIC:t",
        "change": "removed",
        "fields": {"retention.ms": {"before": "7", "after": None}},
    }


def test_records_of_an_open_transaction_are_shown() -> None:
    image = after([BeginTransaction(0, "big"), Topic(0, "t", TOPIC_ID)])
    held = at(tree(image), "transaction", "held", "1")
    assert isinstance(held, Hidden)
    assert held.text == '{"type":"TOPIC_RECORD","version":0,"data":{"name":"t","topicId":"CQkJCQkJCQkJCQkJCQkJCQ"}}'


def test_records_have_the_shape_of_kafkas_decoder() -> None:
    assert record_document(Config(0, 4, "", "min.insync.replicas", "1"), nothing_is_secret) == {
        "type": "CONFIG_RECORD",
        "version": 0,
        "data": {"resourceType": 4, "resourceName": "", "name": "min.insync.replicas", "value": "1"},
    }
    assert record_document(PartitionChange(0, 2, TOPIC_ID, isr=(1,)), nothing_is_secret)["data"] == {
        "partitionId": 2,
        "topicId": "CQkJCQkJCQkJCQkJCQkJCQ",
        "isr": [1],
    }
    assert "c2VjcmV0" not in str(record_document(UserScramCredential(0, "b", 1, b"s", b"secret", b"k", 1), nothing_is_secret))
