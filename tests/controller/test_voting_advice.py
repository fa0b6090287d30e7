"""Log line of a controller that follows the quorum without a vote."""

from __future__ import annotations

import pytest

from kraftlab.common.uuids import from_text
from kraftlab.config.models import ControllerConfig, build
from kraftlab.controller.main import how_to_vote
from kraftlab.quorum.driver.quorum_description import QuorumDescription, ReplicaDescription

MINE, LOST = "GDAXWlNIRRKoB5wdxbZcYg", "pMTZEsB7QmCgsDzRHlrVcQ"


def config(**changes: str) -> ControllerConfig:
    values = {
        "process.roles": "controller",
        "node.id": "3001",
        "controller.quorum.bootstrap.servers": "127.0.0.1:19093",
        "listeners": "CONTROLLER://127.0.0.1:19094,GRPC://127.0.0.1:19101",
        "metadata.log.dir": "/nowhere",
    }
    return build(
        values | {key.replace("_", "."): value for key, value in changes.items()}, "c.properties", "controller", ControllerConfig
    )


def quorum(*voters: tuple[int, str], kraft_version: int = 1) -> QuorumDescription:
    described = [ReplicaDescription(node_id, from_text(directory), 1, -1, -1, {}) for node_id, directory in voters]
    return QuorumDescription(3001, 3000, 1, 1, described, [], kraft_version)


def advice(config: ControllerConfig, quorum: QuorumDescription) -> str | None:
    return how_to_vote(config, from_text(MINE), quorum)


def test_a_voter_gets_no_advice() -> None:
    assert advice(config(), quorum((3000, LOST), (3001, MINE))) is None


def test_an_observer_gets_advice_to_become_a_voter() -> None:
    assert advice(config(), quorum((3000, LOST))) == (
        "controller 3001 follows the quorum as an observer; to make it a voter: "
        "kraftlab metadata-quorum … add-controller --config c.properties"
    )


def test_a_new_disk_gets_advice_to_replace_its_voter() -> None:
    assert advice(config(), quorum((3001, LOST))) == (
        f"controller 3001 does not vote: the voter of that id has the directory id {LOST}, this disk {MINE}. If the other disk "
        f"is gone: kraftlab metadata-quorum … remove-controller -i 3001 -d {LOST}, then kraftlab metadata-quorum … "
        "add-controller --config c.properties"
    )


@pytest.mark.parametrize("case", ["joins by itself", "static voters"])
def test_a_controller_that_joins_by_itself_gets_no_advice(case: str) -> None:
    if case == "static voters":
        assert advice(config(), quorum((3001, LOST), kraft_version=0)) is None
    else:
        assert advice(config(controller_quorum_auto_join_enable="true"), quorum((3001, LOST))) is None
