"""Two of three controllers are lost for good: the third goes on alone, brokers follow it, and others are added again."""

from __future__ import annotations

from typing import Any

from kraftlab.demo.lab import wait_until
from kraftlab.lab import layout


def test_a_survivor_goes_on_alone_and_is_joined_again(quorum_clusters: Any, kraftlab_here: Any) -> None:
    with quorum_clusters(3, 2) as lab:
        cluster = lab.cluster
        lab.create_topic("before", [0, 1])
        survivor = next(node_id for node_id in cluster.controller_ids if node_id != lab.active)
        lost = [node_id for node_id in cluster.controller_ids if node_id != survivor]
        offset = lab.admin.describe_cluster().metadata_offset
        wait_until("the survivor has it", lambda: lab.metadata_of(cluster.node(survivor).grpc).offset >= offset)
        force = "metadata-quorum", "force-standalone", "--config", config_of(lab, survivor)
        code, said = kraftlab_here(*force)
        assert code == 1
        assert f"metadata directory {cluster.metadata_dir(survivor)} is in use by process" in said
        for node_id in cluster.controller_ids:
            cluster.kill_node(node_id)

        refuses_to_be_forced_by_mistake(lab, survivor, kraftlab_here, force)
        code, said = kraftlab_here(*force, "--confirm", cluster.cluster_id)
        assert code == 0
        assert f"Controller {survivor} is the only voter of cluster {cluster.cluster_id}, in generation 1." in said
        cluster.start_node(survivor)
        for broker in cluster.broker_ids:
            wait_until(f"broker {broker} begins anew", lambda at=broker: begins_anew(lab, at))
        cluster.wait_ready()
        lab.create_topic("after", [0, 1])
        wait_until("data is where it was", lambda: lab.replicas_are_equal("before"))
        assert list(lab.voters()) == [survivor]
        assert lab.admin.describe_quorum().generation == 1

        old = lost[0]
        cluster.start_node(old)
        wait_until("the old voter ends", lambda: old in cluster.exited())
        assert "the quorum was forced since this node last heard of it" in cluster.last_words(old)
        assert "kraftlab storage format --no-initial-controllers" in cluster.last_words(old)
        assert list(lab.voters()) == [survivor]

        for node_id in lost:
            cluster.wipe_controller(node_id)
            cluster.start_node(node_id)
        cluster.wait_ready()
        for node_id in lost:
            cluster.join(node_id)
        assert sorted(lab.voters()) == sorted(cluster.controller_ids)
        assert lab.metadata_is_equal_everywhere()
        lab.transfer(lost[0])
        lab.create_topic("joined-again", [0, 1])


def config_of(lab: Any, node_id: int) -> str:
    return str(layout.properties_path(lab.cluster.directory, lab.cluster.node(node_id)))


def begins_anew(lab: Any, broker: int) -> bool:
    """Return whether a broker has discarded its metadata and serves again, in the same process."""
    _, discarded, since = lab.cluster.log_path(broker).read_text().partition("discards its copy of the metadata")
    return bool(discarded) and f" broker {broker} ready: " in since


def refuses_to_be_forced_by_mistake(lab: Any, survivor: int, kraftlab_here: Any, force: tuple[str, ...]) -> None:
    """A dry run and a wrong answer change no file."""
    directory = lab.cluster.metadata_dir(survivor)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.suffix != ".lock"}
    code, said = kraftlab_here(*force, "--dry-run")
    assert code == 0
    assert f"Controller {survivor} becomes the only voter of cluster {lab.cluster.cluster_id}" in said
    assert "Generation:             0 -> 1\n" in said
    assert "DRY RUN: nothing was changed.\n" in said
    code, said = kraftlab_here(*force, "--confirm", "another")
    assert code == 1
    assert f"'another' is not the id of this cluster, {lab.cluster.cluster_id}; nothing was changed" in said
    after = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.suffix != ".lock"}
    assert after == before


def test_static_voters_give_way_to_voters_in_the_log(quorum_clusters: Any) -> None:
    with quorum_clusters(3, 0, voters_in_log=False) as lab:
        cluster = lab.cluster
        survivor = lab.active
        old = next(node_id for node_id in cluster.controller_ids if node_id != survivor)
        wait_until("the other one has a log", lambda: lab.metadata_of(cluster.node(old).grpc).offset > 0)
        cluster.kill()
        cluster.force_standalone(survivor)
        cluster.start_node(survivor)
        cluster.wait_ready()
        quorum = lab.admin.describe_quorum()
        assert (quorum.kraft_version, quorum.generation, list(lab.voters())) == (1, 1, [survivor])

        cluster.start_node(old)
        wait_until("what was a static voter ends", lambda: old in cluster.exited())
        assert "the quorum was forced since this node last heard of it" in cluster.last_words(old)
        cluster.wipe_controller(old)
        cluster.start_node(old)
        cluster.wait_ready()
        cluster.join(old)
        assert sorted(lab.voters()) == sorted((survivor, old))
