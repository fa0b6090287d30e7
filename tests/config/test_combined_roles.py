"""Variables of a node with both roles become the variables of a controller and of a broker."""

from __future__ import annotations

import pytest

from kraftlab.config import combined_roles, environment
from kraftlab.config.errors import ConfigError
from tests.helpers import testcontainers

JAVA = testcontainers.JAVA | {
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://0f3c:9093",
    "KAFKA_LOG_DIRS": "/data/d0",
}
"""The variables that testcontainers for Java sets, and a directory."""


def listeners(variables: dict[str, str], **changes: str) -> dict[str, str]:
    return {role: own["KAFKA_LISTENERS"] for role, own in combined_roles.split(variables | changes).items()}


def test_the_broker_serves_clients_at_the_given_address_and_all_else_is_on_loopback() -> None:
    assert listeners(JAVA) == {
        "controller": "CONTROLLER://127.0.0.1:9094,GRPC://127.0.0.1:9095",
        "broker": "PEER://127.0.0.1:9097,GRPC://127.0.0.1:9096,KAFKA://0.0.0.0:9092,METRICS://127.0.0.1:9404",
    }


def test_both_nodes_have_valid_files_ids_and_directories_of_their_own() -> None:
    split = combined_roles.split(JAVA)
    controller, broker = (environment.load(split[role], None) for role in ("controller", "broker"))
    assert (controller.process_roles, controller.node_id) == (("controller",), 3001)
    assert (broker.process_roles, broker.node_id) == (("broker",), 1)
    assert str(broker.advertised_listeners["KAFKA"]) == "localhost:32768"
    assert set(controller.all_directories()).isdisjoint(broker.all_directories())
    assert split["broker"]["CLUSTER_ID"] == split["controller"]["CLUSTER_ID"] == JAVA["CLUSTER_ID"]


def test_a_cluster_id_of_testcontainers_for_python_becomes_one_of_kafka() -> None:
    split = combined_roles.split({**JAVA, "CLUSTER_ID": "3vvyhAc1Q0m+hpVQ/Yk1lw=="})
    assert split["broker"]["CLUSTER_ID"] == split["controller"]["CLUSTER_ID"] == "3vvyhAc1Q0m-hpVQ_Yk1lw"


def test_variables_of_apache_kafkas_image_without_a_listener_between_brokers_will_do() -> None:
    changed = {**JAVA, "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093,METRICS://0.0.0.0:9500"}
    del changed["KAFKA_INTER_BROKER_LISTENER_NAME"]
    assert listeners(changed)["broker"].endswith("KAFKA://0.0.0.0:9092,METRICS://0.0.0.0:9500")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"KAFKA_NODE_ID": ""}, "needs KAFKA_NODE_ID"),
        ({"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9094,2@b:9094"}, "several controllers; start each"),
        ({"KAFKA_LISTENERS": "PLAINTEXT://:9092"}, "has no listener CONTROLLER for the controller; add one"),
        ({"KAFKA_LISTENERS": "CONTROLLER://:9094"}, "one listener for clients, and there is none"),
        ({"KAFKA_LISTENERS": JAVA["KAFKA_LISTENERS"] + ",TC-0://a:19092"}, r"not 2 \(PLAINTEXT, TC-0\)"),
        ({"KAFKA_LISTENERS": "PLAINTEXT://:0,CONTROLLER://:9094"}, "'PLAINTEXT://:0' is not NAME://host:port"),
        ({"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:SASL_SSL"}, "serves PLAINTEXT, not SASL_SSL"),
    ],
)
def test_what_two_nodes_cannot_do_is_refused_with_the_next_step(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        combined_roles.split(JAVA | changes)


@pytest.mark.parametrize(("roles", "expected"), [("controller, broker", True), ("broker", False), ("", False)])
def test_both_roles_in_any_order_are_combined_roles(roles: str, expected: bool) -> None:
    assert combined_roles.are_in({"KAFKA_PROCESS_ROLES": roles}) is expected
