"""Properties from environment variables, as Apache Kafka's container image takes them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.common.endpoint import Endpoint
from kraftlab.common.uuids import random_uuid, to_text
from kraftlab.config import environment, meta_properties
from kraftlab.config.environment import load, name_of, prepare, variable_of
from kraftlab.config.errors import ConfigError
from kraftlab.config.topic_configs import BROKER_KEYS

words = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)


def joined(separators: list[str]) -> st.SearchStrategy[str]:
    """Words with one of the separators between each two of them."""
    pairs = st.lists(st.tuples(st.sampled_from(separators), words), max_size=6)
    return st.tuples(words, pairs).map(lambda parts: parts[0] + "".join(map("".join, parts[1])))


@given(joined([".", "_", "-"]))
def test_every_key_has_a_variable_that_names_it(name: str) -> None:
    assert name_of(variable_of(name)) == name


@given(joined(["_", "__", "___"]))
def test_every_variable_is_that_of_its_key(text: str) -> None:
    variable = f"KAFKA_{text.upper()}"
    assert variable_of(name_of(variable)) == variable


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_CONTROLLER_QUORUM_VOTERS", "controller.quorum.voters"),
        ("KAFKA_LISTENER_NAME_KAFKA_SCRAM___SHA___512_SASL_JAAS_CONFIG", "listener.name.kafka.scram-sha-512.sasl.jaas.config"),
        ("KAFKA_ABC__DEF___GHI_JKL", "abc_def-ghi.jkl"),
    ],
)
def test_variables_are_named_as_for_kafka(variable: str, name: str) -> None:
    assert (name_of(variable), variable_of(name)) == (name, variable)


def test_of_all_keys_the_variable_is_known() -> None:
    assert [name for name in BROKER_KEYS if name_of(variable_of(name)) != name] == []


# --- reading ------------------------------------------------------------------------------------------------------------------


def variables(tmp_path: Path, role: str = "broker", **more: str) -> dict[str, str]:
    """A broker or a controller that Apache Kafka's image would start, but for the names of its listeners."""
    own = {
        "broker": {
            "KAFKA_NODE_ID": "1",
            "KAFKA_ADVERTISED_LISTENERS": "PEER://broker-1:9094,GRPC://broker-1:9095,KAFKA://[::1]:9092",
            "KAFKA_LOG_DIRS": f"{tmp_path}/d0,{tmp_path}/d1",
        },
        "controller": {"KAFKA_NODE_ID": "3000", "KAFKA_LISTENERS": "CONTROLLER://controller:9093,GRPC://controller:9095"},
    }
    return {
        "PATH": "/bin",
        "KAFKA_PROCESS_ROLES": role,
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "3000@controller:9093",
        "KAFKA_METADATA_LOG_DIR": f"{tmp_path}/metadata",
        **own[role],
        **more,
    }


def test_a_broker_listens_on_every_address_at_the_ports_that_it_advertises(tmp_path: Path) -> None:
    config = load(variables(tmp_path), None)
    assert config.advertised_listeners["PEER"] == Endpoint("broker-1", 9094)
    assert {str(endpoint) for endpoint in config.listeners.values()} == {"0.0.0.0:9094", "0.0.0.0:9095", "0.0.0.0:9092"}


def test_listeners_that_are_given_stay(tmp_path: Path) -> None:
    given_ones = "PEER://10.0.0.1:9094,GRPC://10.0.0.1:9095"
    config = load(variables(tmp_path, KAFKA_LISTENERS=given_ones, KAFKA_ADVERTISED_LISTENERS="PEER://broker-1:9094"), None)
    assert config.listeners["PEER"] == Endpoint("10.0.0.1", 9094)


def test_a_controller_advertises_nothing(tmp_path: Path) -> None:
    assert load(variables(tmp_path, "controller"), None).node_id == 3000
    with pytest.raises(ConfigError, match=r"KAFKA_ADVERTISED_LISTENERS is not supported on a controller; give its listeners"):
        load(variables(tmp_path, "controller", KAFKA_ADVERTISED_LISTENERS="CONTROLLER://c:9093"), None)


def test_variables_win_over_the_mounted_file(tmp_path: Path) -> None:
    mounted = tmp_path / "server.properties"
    mounted.write_text("node.id=7\nnum.partitions=5\n")
    config = load(variables(tmp_path), mounted)
    assert (config.node_id, config.num_partitions) == (1, 5)


def test_variables_without_effect_are_warnings_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given_ones = variables(
        tmp_path,
        KAFKA_HEAP_OPTS="-Xmx1G",
        KAFKA_NUM_PARTITION="3",
        KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR="1",
        KAFKA_NUM_NETWORK_THREADS="3",
        KAFKA_X_FILE="/nowhere",
    )
    config = load(given_ones, None)
    prepare(given_ones, config, None)
    unused, unknown = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert unused.startswith(
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: transaction.state.log.replication.factor=1 has no effect: "
    )
    assert unknown == (
        "these variables have no effect: KAFKA_HEAP_OPTS, KAFKA_NUM_PARTITION (did you mean KAFKA_NUM_PARTITIONS?), KAFKA_X_FILE"
    )


def test_a_wrong_value_is_refused_as_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the environment: Invalid value x for configuration num\.partitions"):
        load(variables(tmp_path, KAFKA_NUM_PARTITIONS="x"), None)
    with pytest.raises(ConfigError, match=r"process\.roles=broker,controller: expected controller or broker"):
        load(variables(tmp_path, KAFKA_PROCESS_ROLES="broker,controller"), None)


def test_a_secret_can_be_in_a_file(tmp_path: Path) -> None:
    secret, file = "KAFKA_LISTENER_NAME_GRPC_USERS", tmp_path / "users"
    file.write_text("alice:alice-secret\n")
    here = {"KAFKA_ADVERTISED_LISTENERS": "PEER://127.0.0.1:9094,GRPC://127.0.0.1:9095"}
    here["KAFKA_LISTENERS"] = here["KAFKA_ADVERTISED_LISTENERS"]
    config = load(variables(tmp_path, KAFKA_LOG_FILE="/x.log", **here, **{f"{secret}_FILE": str(file)}), None)
    assert config.users.principal("alice", "alice-secret") == "User:alice"
    assert config.log_file == Path("/x.log"), "names of keys come first"
    with pytest.raises(ConfigError, match=rf"{secret}_FILE=/nowhere: the file with .*users cannot be read: No such file"):
        load(variables(tmp_path, **{f"{secret}_FILE": "/nowhere"}), None)
    with pytest.raises(ConfigError, match=rf"sets listener\.name\.grpc\.users twice, the second time as {secret}_FILE"):
        load(variables(tmp_path, **{secret: "a:b", f"{secret}_FILE": str(file)}), None)


# --- formatting ---------------------------------------------------------------------------------------------------------------


def started(tmp_path: Path, role: str = "broker", **more: str) -> None:
    given_ones = variables(tmp_path, role, **more)
    prepare(given_ones, load(given_ones, None), None)


def test_only_with_a_cluster_id_empty_directories_are_formatted(tmp_path: Path) -> None:
    started(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "d0" / "lost+found").mkdir(parents=True)
    started(tmp_path, CLUSTER_ID="kraftlab-1")
    held = {name: meta_properties.read(tmp_path / name) for name in ("metadata", "d0", "d1")}
    assert {meta is not None and (meta.cluster_id, meta.node_id) for meta in held.values()} == {("kraftlab-1", 1)}
    started(tmp_path, CLUSTER_ID="kraftlab-1")
    assert {name: meta_properties.read(tmp_path / name) for name in held} == held, "a second start changes nothing"


def test_a_directory_that_is_not_empty_is_not_formatted(tmp_path: Path) -> None:
    (tmp_path / "d1" / "orders-0").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"/d1 is not formatted and not empty, and CLUSTER_ID formats empty directories only"):
        started(tmp_path, CLUSTER_ID="kraftlab-1")
    assert not (tmp_path / "metadata").exists()


def test_directories_of_another_cluster_are_refused(tmp_path: Path) -> None:
    started(tmp_path, CLUSTER_ID="kraftlab-1")
    with pytest.raises(ConfigError, match=r"/metadata belongs to cluster kraftlab-1, not to CLUSTER_ID=kraftlab-2"):
        started(tmp_path, CLUSTER_ID="kraftlab-2")


def test_a_controller_with_its_voters_in_the_log_needs_to_know_the_first_ones(tmp_path: Path) -> None:
    dynamic = {"KAFKA_CONTROLLER_QUORUM_VOTERS": "", "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "controller:9093"}
    with pytest.raises(ConfigError, match=r"the first voters of the quorum are unknown; set INITIAL_CONTROLLERS="):
        started(tmp_path, "controller", CLUSTER_ID="kraftlab-1", **dynamic)
    directory_id = random_uuid()
    voters = f"3000@controller:9093:{to_text(directory_id)}"
    started(tmp_path, "controller", CLUSTER_ID="kraftlab-1", INITIAL_CONTROLLERS=voters, **dynamic)
    held = meta_properties.read(tmp_path / "metadata")
    assert held is not None and held.directory_id == directory_id
    started(tmp_path, "controller", CLUSTER_ID="kraftlab-1", **dynamic)


def test_an_unreadable_directory_is_left_to_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: Path) -> bool:
        raise OSError(5, "Input/output error", str(path))

    given_ones = variables(tmp_path)
    config = load(given_ones, None)
    monkeypatch.setattr(Path, "exists", failing)
    assert environment.format_empty(config, "kraftlab-1", None) == []
