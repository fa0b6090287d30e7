from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kraftlab.common.endpoint import Endpoint
from kraftlab.config.endpoints import parse_endpoint, parse_servers
from kraftlab.config.errors import ConfigError
from kraftlab.config.models import NO_VOTERS, BrokerConfig, load_any, load_broker, load_controller
from kraftlab.config.topic_configs import BROKER_KEYS


def test_a_controller_file_becomes_typed_values(controller_file, tmp_path: Path) -> None:
    config = load_controller(controller_file())
    assert config.node_id == 3000
    assert config.voters.ids() == (3000, 3001, 3002)
    assert config.peer == Endpoint("127.0.0.1", 19093)
    assert config.grpc == Endpoint("127.0.0.1", 19100)
    assert config.metadata_log_dir == tmp_path / "metadata"
    assert config.log_dirs == ()
    assert config.election_timeout_ms == 300


def test_a_broker_file_becomes_typed_values(broker_file, tmp_path: Path) -> None:
    config = load_broker(broker_file({"log.segment.bytes": "1048576", "unclean.leader.election.enable": "true"}))
    assert config.log_dirs == (tmp_path / "d0", tmp_path / "d1")
    assert config.rack == "rack-1"
    assert config.log_segment_bytes == 1048576
    assert config.static("unclean.leader.election.enable") == "true"
    assert config.static("log.segment.bytes") == "1048576"
    assert config.static("log.roll.ms") is None
    assert config.all_directories() == (tmp_path / "metadata", tmp_path / "d0", tmp_path / "d1")


def test_directories_may_have_blanks_around_them_and_the_metadata_may_lie_in_one_of_them(broker_file) -> None:
    config = load_broker(broker_file({"log.dirs": " /x/d0 , /x/d 1/ ", "metadata.log.dir": "/x/d 1"}))
    assert config.log_dirs == (Path("/x/d0"), Path("/x/d 1"))
    assert config.metadata_log_dir == Path("/x/d 1") and len(config.all_directories()) == 2


def test_the_role_of_a_file_decides_its_model(controller_file, broker_file) -> None:
    assert load_any(controller_file()).process_roles == ("controller",)
    assert load_any(broker_file()).process_roles == ("broker",)


def test_a_file_written_for_kafka_may_repeat_defaults_of_keys_that_nothing_acts_on(broker_file) -> None:
    config = load_broker(
        broker_file({"num.network.threads": "3", "log.retention.hours": "168", "offsets.topic.replication.factor": "3"})
    )
    assert config.static("num.network.threads") == "3"


def test_the_metadata_directory_defaults_to_the_first_log_directory(broker_file, tmp_path: Path) -> None:
    assert load_broker(broker_file({"metadata.log.dir": None})).metadata_log_dir == tmp_path / "d0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodeid": "3"}, "sets nodeid, an unknown key; did you mean node.id?"),
        ({"zzz": "3"}, "sets zzz, an unknown key; remove it"),
        ({"node.id": None}, "does not set node.id; add it"),
        ({"node.id": "x"}, "Invalid value x for configuration node.id: Not a number of type INT"),
        ({"node.id": "-1"}, "Invalid value -1 for configuration node.id: Value must be at least 0"),
        ({"node.id": "7"}, "node.id=7: is not among the controllers of controller.quorum.voters (3000,3001,3002)"),
        ({"broker.id": "7"}, "sets broker.id=7 and node.id=3000; keep one of them"),
        ({"process.roles": "broker"}, "expected controller alone, since a node has one role"),
        ({"process.roles": "broker,controller"}, "expected controller alone"),
        ({"process.roles": None}, "does not set process.roles"),
        ({"listeners": None}, "does not set listeners"),
        ({"listeners": "CONTROLLER://127.0.0.1:19093"}, "has no GRPC listener"),
        ({"listeners": "CONTROLLER://127.0.0.1:0,GRPC://h:1"}, "with a port from 1 to 65535"),
        ({"listeners": "CONTROLLER://127.0.0.1:99999,GRPC://h:1"}, "with a port from 1 to 65535"),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:1,GRPC://h:1"},
            "listener PLAINTEXT is not one of this role; it serves CONTROLLER and GRPC",
        ),
        ({"listeners": "CONTROLLER://h:1,GRPC://h:1"}, "give every listener a port of its own"),
        ({"listeners": "CONTROLLER://:19093,GRPC://h:1"}, "add advertised.listeners=CONTROLLER://HOST:19093"),
        (
            {"listeners": "CONTROLLER://127.0.0.1:19099,GRPC://h:1"},
            "voter 3000 is 127.0.0.1:19093, but listeners say 127.0.0.1:19099",
        ),
        ({"controller.quorum.voters": "3000"}, "'3000' is not id@host:port"),
        ({"controller.quorum.voters": "3000@h:19093,3000@h:2"}, "voter 3000 is listed twice"),
        ({"controller.quorum.bootstrap.servers": "h:1"}, "keep the one that the cluster was formatted for"),
        ({"controller.quorum.voters": None}, "does not say where the controllers are; add controller.quorum.bootstrap.servers="),
        (
            {"controller.quorum.auto.join.enable": "true"},
            "voters are static here; remove it, or use controller.quorum.bootstrap.servers",
        ),
        ({"controller.listener.names": "PLAINTEXT"}, "write controller.listener.names=CONTROLLER or remove it"),
        ({"listener.security.protocol.map": "CONTROLLER:SSL"}, "listener CONTROLLER speaks TLS and has no certificate"),
        ({"metadata.log.dir": None}, "does not set metadata.log.dir"),
        ({"log.dir": "/a", "log.dirs": "/b"}, "sets both log.dir=/a and log.dirs=/b; keep log.dirs only"),
        ({"log.dirs": "/a,/a"}, "log.dirs=/a,/a: /a is listed twice"),
        ({"log.dirs": "/a,//a/./"}, "/a is listed twice"),
        ({"log.dirs": "/x/d0, "}, "log.dirs=/x/d0,: an entry is empty; write /x/d0"),
        ({"log.dirs": ",/x/d0"}, "an entry is empty; write /x/d0"),
        ({"log.dirs": "/x/d0,,/x/d1"}, "an entry is empty; write /x/d0,/x/d1"),
        ({"log.dirs": "/a,,/a"}, "an entry is empty, and /a is listed twice; write /a"),
        ({"log.dirs": ","}, "an entry is empty; write absolute paths"),
        ({"log.dirs": "/x/a,b/broker-0/d0"}, "'b/broker-0/d0' is not an absolute path; write "),
        ({"log.dirs": "."}, "'.' is not an absolute path"),
        ({"log.dirs": "/x/d0/,/x/d0/d1"}, "/x/d0/d1 lies inside /x/d0"),
        ({"log.dirs": "/x/d0/d1, /x/d0"}, "/x/d0/d1 lies inside /x/d0"),
        ({"log.dir": "d0"}, "log.dir=d0: 'd0' is not an absolute path; write /"),
        ({"metadata.log.dir": "metadata"}, "metadata.log.dir=metadata: 'metadata' is not an absolute path"),
        ({"metadata.log.dir": "/x/a,b"}, "metadata.log.dir=/x/a,b: a comma separates the entries of log.dirs"),
        ({"metadata.log.dir": "/x/d0/metadata", "log.dirs": "/x/d0"}, "/x/d0/metadata lies inside /x/d0"),
        ({"controller.quorum.fetch.timeout.ms": "2"}, "Value must be at least 10"),
        ({"unclean.leader.election.enable": "perhaps"}, "Expected value to be either true or false"),
    ],
)
def test_a_faulty_file_is_refused_with_key_value_and_advice(
    controller_file, changes: dict[str, str | None], message: str
) -> None:
    path = controller_file(changes)
    with pytest.raises(ConfigError) as raised:
        load_controller(path)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"controller.quorum.bootstrap.servers": "h:1,h"}, "'h' is not host:port"),
        ({"controller.quorum.bootstrap.servers": ":1"}, "':1' is not host:port"),
        ({"metadata.log.max.record.bytes.between.snapshots": "0"}, "Value must be at least 1"),
        ({"metadata.log.max.snapshot.interval.ms": "-1"}, "Value must be at least 0"),
        ({"controller.quorum.auto.join.enable": "yes"}, "Expected value to be either true or false"),
    ],
)
def test_a_faulty_file_of_a_dynamic_quorum_is_refused(dynamic_file, changes: dict[str, str | None], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_controller(dynamic_file(changes))
    assert message in str(raised.value)


def test_voters_in_the_log_need_only_bootstrap_servers(dynamic_file, tmp_path: Path) -> None:
    config = load_controller(
        dynamic_file(
            {
                "node.id": "3009",
                "controller.quorum.auto.join.enable": "true",
                "metadata.log.max.record.bytes.between.snapshots": "1000",
                "metadata.log.max.snapshot.interval.ms": "0",
                "kraftlab.trace.file": str(tmp_path / "trace.ndjson"),
            }
        )
    )
    assert config.is_dynamic
    assert config.bootstrap_servers == config.controllers == (Endpoint("127.0.0.1", 19093), Endpoint("127.0.0.1", 19094))
    assert config.voters.ids() == ()
    assert config.auto_join
    assert (config.snapshot_max_new_bytes, config.snapshot_max_interval_ms) == (1000, 0)
    assert config.trace_file == tmp_path / "trace.ndjson"


def test_a_broker_finds_the_controllers_either_way(broker_file) -> None:
    static = load_broker(broker_file())
    dynamic = load_broker(
        broker_file({"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "127.0.0.1:19093"})
    )
    assert static.controllers == dynamic.controllers == (Endpoint("127.0.0.1", 19093),)
    assert (static.is_dynamic, dynamic.is_dynamic) == (False, True)


def test_cordoned_directories_are_among_the_configured_ones(broker_file, tmp_path: Path) -> None:
    for value in ("*", f"{tmp_path / 'd1'}", ""):
        load_broker(broker_file({"cordoned.log.dirs": value}))
    with pytest.raises(
        ConfigError, match=r"cordoned.log.dirs=/no/such: /no/such is not one of log.dirs; they are .*d0, .*d1, or \*"
    ):
        load_broker(broker_file({"cordoned.log.dirs": "/no/such"}))


def test_a_broker_does_not_join_the_voters(broker_file) -> None:
    with pytest.raises(ConfigError, match=r"auto.join.enable=true: only a controller can become a voter; remove it"):
        load_broker(broker_file({"controller.quorum.auto.join.enable": "true"}))


def test_a_broker_is_no_voter(broker_file) -> None:
    with pytest.raises(ConfigError, match=r"give the broker another id"):
        load_broker(broker_file({"node.id": "3000"}))


def test_the_listener_of_brokers_has_one_name(broker_file) -> None:
    load_broker(broker_file({"inter.broker.listener.name": "PEER"}))
    with pytest.raises(ConfigError, match=r"write inter.broker.listener.name=PEER or remove it"):
        load_broker(broker_file({"inter.broker.listener.name": "PLAINTEXT"}))


def test_a_broker_needs_log_directories(broker_file) -> None:
    with pytest.raises(ConfigError, match=r"does not set log.dirs"):
        load_broker(broker_file({"log.dirs": None}))


def test_the_topic_name_of_a_broker_key_is_an_alias(broker_file) -> None:
    assert load_broker(broker_file({"file.delete.delay.ms": "5"})).log_segment_delete_delay_ms == 5


def test_defaults_of_the_models_are_those_of_the_key_table() -> None:
    for field in msgspec.structs.fields(BrokerConfig):
        key = BROKER_KEYS.get(field.encode_name)
        if key is None or field.default in (msgspec.NODEFAULT, None, (), NO_VOTERS):
            continue
        shown = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        assert shown == key.default, field.encode_name


def test_endpoints_take_names_addresses_and_ipv6() -> None:
    assert parse_endpoint("localhost:1") == Endpoint("localhost", 1)
    assert parse_endpoint("[::1]:9092") == Endpoint("::1", 9092)
    assert parse_endpoint("::1:9092") is None
    assert parse_endpoint("host") is None
    assert parse_endpoint("münchen.example.:1") == Endpoint("münchen.example.", 1)


@pytest.mark.parametrize("host", ["a..b", ".", "x" * 64, "\udcff", "é" * 64, "é..b"])
def test_a_host_that_no_resolver_can_be_asked_for_is_no_endpoint(host: str) -> None:
    assert parse_endpoint(f"{host}:1") is None


def test_bootstrap_servers_are_a_list_of_endpoints() -> None:
    assert parse_servers("a:1, b:2,a:1") == (Endpoint("a", 1), Endpoint("b", 2))
    for text in ("", "a", ":9092", "a:0", "a:1;b:2"):
        with pytest.raises(ConfigError, match="write for example"):
            parse_servers(text)
