"""UpdateFeatures: valid levels, refusals with their reason, and records that go with a level."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError
from kraftlab.controller.configs import features
from kraftlab.controller.engine.state import QuorumFacts
from kraftlab.metadata.features import supported_features
from kraftlab.metadata.peer_rpc import ControllerRegistrationRequest
from kraftlab.metadata.records import ClearElr, Config, FeatureLevel

UPGRADE, SAFE, UNSAFE = 1, 2, 3
ELR = "eligible.leader.replicas.version"
BEGINNING = "The update failed for all features since the following feature had an error: "
Update = tuple[str, int, int | None]


class Updates:
    """Runs UpdateFeatures and keeps the records."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.quorum = QuorumFacts((), 1)
        self.records: list[Any] = []

    async def __call__(self, *updates: Update, version: int = 2, validate_only: bool = False) -> Any:
        request = admin_pb2.UpdateFeaturesRequest(validate_only=validate_only)
        request.header.api_version = version
        for name, level, upgrade_type in updates:
            request.feature_updates.add(feature=name, max_version_level=level, upgrade_type=upgrade_type)
        return await self.cluster.write(self._run, request)

    def _run(self, state: Any, request: Any, context: Any) -> Any:
        outcome = features.update(state, request, context._replace(quorum=lambda: self.quorum))
        self.records = list(outcome.records)
        return outcome

    async def refusal(self, *updates: Update, version: int = 2) -> str:
        end = self.cluster.quorum.end_offset
        with pytest.raises(ApiError) as refused:
            await self(*updates, version=version)
        assert refused.value.code == 95
        assert self.cluster.quorum.end_offset == end
        assert refused.value.message is not None and refused.value.message.startswith(BEGINNING)
        return refused.value.message.removeprefix(BEGINNING)

    @property
    def levels(self) -> dict[str, int]:
        return dict(self.cluster.controller.committed.image.features)


@pytest.fixture
def update(cluster: Any) -> Updates:
    return Updates(cluster)


async def test_a_fresh_cluster_has_every_feature_at_its_newest_level(update: Updates) -> None:
    assert update.levels == {
        ELR: 1,
        "group.version": 1,
        "metadata.version": 30,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            ("metadata.version", 31, UPGRADE),
            "Invalid update version 31 for feature metadata.version. Local controller 3000 only supports versions 7-30",
        ),
        (
            ("metadata.version", 29, UPGRADE),
            "Invalid update version 29 for feature metadata.version. Can't downgrade the version of this feature without "
            "setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (
            ("metadata.version", 29, SAFE),
            "Unsupported metadata.version downgrade from 30 to 29. Refusing to perform the requested downgrade because it might "
            "delete metadata information.",
        ),
        (
            ("metadata.version", 29, UNSAFE),
            "Unsupported metadata.version downgrade from 30 to 29. Unsafe metadata downgrade is not supported in this version.",
        ),
        (
            ("metadata.version", 0, SAFE),
            "Invalid update version 0 for feature metadata.version. Local controller 3000 only supports versions 7-30",
        ),
        (
            ("metadata.version", -1, UPGRADE),
            "Invalid update version -1 for feature metadata.version. A feature version cannot be less than 0.",
        ),
        (
            ("no.such", 1, UPGRADE),
            "Invalid update version 1 for feature no.such. Local controller 3000 does not support this feature.",
        ),
        (("no.such", 0, SAFE), "Invalid update version 0 for feature no.such. Feature no.such not found."),
        (
            ("group.version", 2, UPGRADE),
            "Invalid update version 2 for feature group.version. Local controller 3000 only supports versions 0-1",
        ),
        (
            ("group.version", 1, 0),
            "Invalid update version 1 for feature group.version. The controller does not support the given upgrade type.",
        ),
        (
            ("group.version", 1, 4),
            "Invalid update version 1 for feature group.version. The controller does not support the given upgrade type.",
        ),
        (
            ("kraft.version", 0, SAFE),
            "Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature.",
        ),
        (("", 1, UPGRADE), "Invalid update version 1 for feature . Local controller 3000 does not support this feature."),
    ],
)
async def test_levels_that_cannot_be_finalized(update: Updates, change: Update, reason: str) -> None:
    assert await update.refusal(change) == reason


@pytest.mark.parametrize(
    "change",
    [
        ("metadata.version", 30, UPGRADE),
        ("group.version", 1, UPGRADE),
        ("group.version", 0, SAFE),
        ("group.version", 0, UNSAFE),
        ("transaction.version", 1, SAFE),
        ("kraft.version", 1, UPGRADE),
        (ELR, 0, SAFE),
    ],
)
async def test_levels_that_can(update: Updates, change: Update) -> None:
    assert not (await update(change, validate_only=True)).header.error_code
    assert update.records == []


async def test_a_level_is_written_even_if_it_is_the_same_and_0_removes_the_feature(update: Updates) -> None:
    await update(("group.version", 1, UPGRADE))
    assert update.records == [FeatureLevel(0, "group.version", 1)]
    await update(("group.version", 0, SAFE))
    assert "group.version" not in update.levels
    await update(("group.version", 1, None))
    assert update.levels["group.version"] == 1, "an update that names no type is an upgrade"


async def test_one_bad_update_fails_all(update: Updates) -> None:
    assert "no.such" in await update.refusal(("group.version", 0, SAFE), ("no.such", 1, UPGRADE))
    assert update.levels["group.version"] == 1


async def test_a_later_update_of_the_same_feature_is_held_against_the_earlier_one(update: Updates) -> None:
    await update(("group.version", 0, SAFE), ("group.version", 1, UPGRADE))
    assert update.levels["group.version"] == 1
    assert "Can't downgrade to a newer version" in await update.refusal(("group.version", 0, SAFE), ("group.version", 1, SAFE))


async def test_old_versions_name_each_feature_in_the_answer(update: Updates) -> None:
    response = await update(("group.version", 1, UPGRADE), version=1)
    assert [(r.feature, r.error_code, r.error_message) for r in response.results] == [("group.version", 0, "NONE")]
    assert not (await update(("group.version", 1, UPGRADE))).results


async def test_the_oldest_version_allows_downgrades_by_a_flag(update: Updates) -> None:
    request = admin_pb2.UpdateFeaturesRequest()
    request.header.api_version = 0
    request.feature_updates.add(feature="group.version", max_version_level=0, allow_downgrade=True)
    await update.cluster.write(features.update, request)
    assert "group.version" not in update.levels


async def test_every_broker_has_to_support_a_level(update: Updates) -> None:
    await update(("group.version", 0, SAFE))
    old = tuple(feature for feature in supported_features() if feature[0] != "group.version")
    await update.cluster.register(7, features=old)
    assert await update.refusal(("group.version", 1, UPGRADE)) == (
        "Invalid update version 1 for feature group.version. Broker 7 does not support this feature."
    )
    await update(("group.version", 0, SAFE))


async def test_every_member_of_the_quorum_has_to_be_registered_and_to_support_a_level(update: Updates) -> None:
    update.quorum = QuorumFacts((3000, 3001), 1)
    assert "missing 3001" in await update.refusal(("group.version", 1, UPGRADE))
    from kraftlab.controller.cluster import controllers

    registration = ControllerRegistrationRequest(3001, b"i" * 16, (), supported_features())
    await update.cluster.write(controllers.register, registration)
    await update(("group.version", 1, UPGRADE))
    await update(("group.version", 0, SAFE))
    narrow = tuple(
        ("group.version", 0, 0) if name == "group.version" else (name, low, high) for name, low, high in supported_features()
    )
    await update.cluster.write(controllers.register, ControllerRegistrationRequest(3001, b"j" * 16, (), narrow))
    assert "Controller 3001 does not support this feature." in await update.refusal(("group.version", 1, UPGRADE))


async def test_voters_in_files_cannot_be_raised_by_a_feature_update(update: Updates) -> None:
    update.quorum = QuorumFacts((), 0)
    assert "static" in await update.refusal(("kraft.version", 1, UPGRADE))


async def test_switching_eligible_leaders_off_clears_them_and_on_makes_one_min_isr(update: Updates) -> None:
    await update((ELR, 0, SAFE))
    assert update.records == [FeatureLevel(0, ELR, 0), ClearElr(0, "")]
    await update.cluster.start_brokers(0)
    assert await update.cluster.configure(4, "0", ("min.insync.replicas", 0, "2")) == (0, "")
    assert await update.cluster.configure(4, "", ("min.insync.replicas", 1, None)) == (0, "")
    await update((ELR, 1, UPGRADE))
    assert update.records == [
        FeatureLevel(0, ELR, 1),
        Config(0, 4, "", "min.insync.replicas", "1"),
        Config(0, 4, "0", "min.insync.replicas", None),
    ]


async def test_a_log_that_was_begun_by_earlier_software_has_eligible_leaders_off(tools: Any) -> None:
    from kraftlab.metadata import codec, eligible_leaders

    cluster = tools.Cluster()
    cluster.quorum.epoch += 1
    cluster.quorum.leads = True
    cluster.quorum.propose(1, *codec.encode([FeatureLevel(0, "metadata.version", 30)]))
    await cluster.commit()
    await cluster.lead()
    image = cluster.controller.committed.image
    assert dict(image.features) == {"metadata.version": 30}
    assert not eligible_leaders.are_on(image)
    assert not image.configs


async def test_a_new_cluster_begins_with_its_formatted_levels(tools: Any) -> None:
    settings = tools.Settings(
        tools.cluster_id,
        3000,
        max_idle_interval_ms=0,
        static={"min.insync.replicas": "2"},
        first_levels={ELR: 1, "metadata.version": 29, "group.version": 0},
    )
    cluster = tools.Cluster(settings)
    await cluster.lead()
    image = cluster.controller.committed.image
    assert dict(image.features) == {ELR: 1, "metadata.version": 29}
    assert image.config(4, "", "min.insync.replicas") == "2"
    update = Updates(cluster)
    await update(("metadata.version", 24, SAFE))
    assert update.levels["metadata.version"] == 24, "no format has changed since"
    assert "delete metadata information" in await update.refusal(("metadata.version", 22, SAFE))
    await update(("metadata.version", 30, UPGRADE))


async def test_eligible_leaders_need_a_metadata_version_that_has_them(tools: Any) -> None:
    levels = {"metadata.version": 22}
    cluster = tools.Cluster(tools.Settings(tools.cluster_id, 3000, max_idle_interval_ms=0, first_levels=levels))
    await cluster.lead()
    update = Updates(cluster)
    assert await update.refusal((ELR, 1, UPGRADE)) == (
        f"{ELR} could not be set to 1 because it depends on metadata.version level 23"
    )
    assert "depends on" in await update.refusal((ELR, 1, UPGRADE), ("metadata.version", 22, UPGRADE))
    await update((ELR, 1, UPGRADE), ("metadata.version", 23, UPGRADE))
    assert update.levels == {"metadata.version": 23, ELR: 1}


async def test_a_node_stops_at_a_level_that_it_does_not_support(cluster: Any) -> None:
    from kraftlab.metadata import codec
    from kraftlab.metadata.replay_error import ReplayError
    from kraftlab.quorum.state_machine import CommittedBatch

    before = cluster.controller.committed.image
    end = cluster.quorum.end_offset
    await cluster.controller.resigned(cluster.quorum.epoch, "another node was elected")
    body, count = codec.encode([FeatureLevel(0, "metadata.version", 31)])
    with pytest.raises(ReplayError, match="does not support that level"):
        await cluster.controller.apply([CommittedBatch(end, end + count, cluster.quorum.epoch + 1, 0, body)], end + count)
    assert cluster.controller.committed.image == before, "nothing of it is published"
