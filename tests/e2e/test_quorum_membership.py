"""Controllers come, go, lose their disks and hand over while the cluster works: voters in the log, through the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kraftlab.common.errors import ApiError
from kraftlab.demo.lab import wait_until
from kraftlab.lab import layout


@pytest.fixture(scope="module")
def running(quorum_clusters: Any) -> Iterator[Any]:
    """Three controllers and a broker, for the whole module."""
    with quorum_clusters(3, 1) as lab:
        yield lab


@pytest.fixture
def lab(running: Any) -> Any:
    """The module's cluster with every node running and three voters or more."""
    running.heal()
    return running


def describe(lab: Any, kraftlab_here: Any) -> dict[str, Any]:
    code, said = kraftlab_here("metadata-quorum", *lab.at, "describe", "--status", "--json")
    assert code == 0, said
    found: dict[str, Any] = json.loads(said)
    return found


def test_a_fourth_controller_joins_and_the_quorum_survives_its_leader(lab: Any, kraftlab_here: Any) -> None:
    cluster = lab.cluster
    fourth = cluster.add_controller()
    config = str(layout.properties_path(cluster.directory, cluster.node(fourth)))
    through_a_broker = "--bootstrap-server", str(cluster.node(0).grpc)
    code, said = kraftlab_here("metadata-quorum", *through_a_broker, "add-controller", "--config", config, "--timeout", "1500")
    assert code == 1
    assert f"node {fourth} did not answer at CONTROLLER://{cluster.node(fourth).peer}: is it running" in said
    cluster.start_node(fourth)
    cluster.wait_ready()
    assert fourth not in lab.voters()
    told = f"controller {fourth} follows the quorum as an observer; to make it a voter: kraftlab metadata-quorum … add-controller"
    wait_until("its log says what to do", lambda: told in cluster.log_path(fourth).read_text())
    code, said = kraftlab_here("metadata-quorum", *lab.at, "add-controller", "--config", config)
    assert (code, said) == (
        0,
        f"Added controller {fourth} with directory id {lab.directory_id(fourth)} and endpoints: "
        f"CONTROLLER://{cluster.node(fourth).peer}\n",
    )
    assert sorted(lab.voters()) == sorted(cluster.controller_ids)
    lab.create_topic("with-four", [0])

    killed = lab.active
    cluster.kill_node(killed)
    lab.create_topic("with-three-of-four", [0])
    assert lab.active != killed

    removed = next(node_id for node_id in cluster.controller_ids if node_id not in (killed, lab.active))
    directory_id = lab.voters()[removed]
    code, said = kraftlab_here("metadata-quorum", *lab.at, "remove-controller", "-i", str(removed), "-d", directory_id)
    assert (code, said) == (0, f"Removed  KRaft controller {removed} with directory id {directory_id}\n")
    assert removed not in lab.voters()
    lab.create_topic("without-one", [0])

    cluster.start_node(killed)
    cluster.wait_ready()
    view = describe(lab, kraftlab_here)
    assert [voter["replica_id"] for voter in view["voters"]] == sorted(set(cluster.controller_ids) - {removed})
    assert {observer["replica_id"] for observer in view["observers"]} >= {removed, 0}
    code, said = kraftlab_here("metadata-quorum", *lab.at, "remove-controller", "-i", str(removed), "-d", directory_id)
    assert code == 1
    assert "is not a voter" in said


def test_a_controller_with_a_new_disk_is_another_voter(lab: Any) -> None:
    cluster = lab.cluster
    victim = next(node_id for node_id in sorted(lab.voters()) if node_id != lab.active)
    lost = lab.voters()[victim]
    cluster.kill_node(victim)
    cluster.wipe_controller(victim)
    cluster.start_node(victim)
    cluster.wait_ready()
    assert lab.directory_id(victim) != lost
    assert lab.voters()[victim] == lost
    told = f"remove-controller -i {victim} -d {lost}, then kraftlab metadata-quorum … add-controller --config "
    wait_until("its log says what to do", lambda: told in cluster.log_path(victim).read_text())
    cluster.leave(victim)
    cluster.join(victim)
    assert lab.voters()[victim] == lab.directory_id(victim)
    assert lab.metadata_is_equal_everywhere()
    lab.transfer(victim)
    lab.create_topic("led-from-the-new-disk", [0])


def test_a_controller_that_joins_by_itself_replaces_the_voter_it_was(lab: Any) -> None:
    cluster = lab.cluster
    victim = next(node_id for node_id in sorted(lab.voters()) if node_id != lab.active)
    lost = lab.voters()[victim]
    cluster.kill_node(victim)
    cluster.wipe_controller(victim)
    with open(layout.properties_path(cluster.directory, cluster.node(victim)), "a", encoding="utf-8") as file:
        file.write("controller.quorum.auto.join.enable=true\n")
    cluster.start_node(victim)
    wait_until("it has joined", lambda: lab.voters().get(victim) == lab.directory_id(victim))
    assert lost not in lab.voters().values()
    lab.create_topic("after-joining", [0])


def test_the_leader_can_be_removed(lab: Any) -> None:
    leader = lab.active
    others = set(lab.voters()) - {leader}
    lab.cluster.leave(leader)
    wait_until("another one leads", lambda: lab.active in others)
    assert set(lab.voters()) == others
    lab.create_topic("under-the-next", [0])
    lab.cluster.join(leader)
    assert leader in lab.voters()


def test_leadership_goes_where_it_is_sent(lab: Any, kraftlab_here: Any) -> None:
    before = lab.active
    target = next(node_id for node_id in sorted(lab.voters()) if node_id != before)
    code, said = kraftlab_here("metadata-quorum", *lab.at, "transfer-leadership", "--to", str(target))
    assert code == 0
    assert said.startswith(f"Controller {target} leads in epoch ")
    assert lab.active == target
    lab.create_topic("after-the-transfer", [0])
    code, said = kraftlab_here("metadata-quorum", *lab.at, "transfer-leadership", "--to", "3999")
    assert code == 1
    assert "Controller 3999 is not a voter; voters are " in said


def test_nothing_acknowledged_is_lost_while_voters_come_and_go(lab: Any, topic_maker: Any) -> None:
    cluster = lab.cluster
    maker = topic_maker(lab, "churn")

    def goes_on() -> None:
        made = len(maker.acknowledged)
        wait_until("topics are made", lambda: len(maker.acknowledged) >= made + 2)

    goes_on()
    former = lab.active
    cluster.leave(former)
    goes_on()
    cluster.join(former)
    goes_on()
    lab.transfer(former)
    goes_on()
    cluster.kill_node(former)
    goes_on()
    cluster.leave(former)
    cluster.wipe_controller(former)
    cluster.start_node(former)
    cluster.wait_ready()
    cluster.join(former)
    lab.transfer(former)
    goes_on()
    maker.stop()
    assert set(maker.acknowledged) <= {*lab.admin.describe_topics()}
    assert lab.metadata_is_equal_everywhere()


def test_static_voters_stay_as_they_are(quorum_clusters: Any, kraftlab_here: Any) -> None:
    with quorum_clusters(1, 1, voters_in_log=False) as lab:
        lab.create_topic("as-before", [0])
        assert lab.admin.describe_quorum().kraft_version == 0
        with pytest.raises(ApiError, match=r"kraft.version is 0: the voters are static, as controller.quorum.voters says"):
            lab.cluster.join(3000)
        code, said = kraftlab_here("metadata-quorum", *lab.at, "transfer-leadership", "--to", "3000")
        assert (code, said.split(" in epoch")[0]) == (0, "Controller 3000 leads already,")
