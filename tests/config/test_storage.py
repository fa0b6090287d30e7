from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraftlab.common.uuids import from_text, to_text
from kraftlab.config import initial_voters, meta_properties, storage
from kraftlab.config.errors import ConfigError
from kraftlab.config.models import NodeConfig, load_broker, load_controller
from kraftlab.quorum.storage.errors import StorageFull


def test_formatting_writes_an_identity_into_every_directory(broker_file, tmp_path: Path) -> None:
    config = load_broker(broker_file())
    lines = storage.format(config, "lab-0000000000000000001")
    assert lines == [
        f"Formatting metadata directory {tmp_path / 'metadata'} with metadata.version 4.3-IV0.",
        f"Formatting data directory {tmp_path / 'd0'} with metadata.version 4.3-IV0.",
        f"Formatting data directory {tmp_path / 'd1'} with metadata.version 4.3-IV0.",
    ]
    metas = meta_properties.verify(config.all_directories(), 1, config.source)
    assert {meta.cluster_id for meta in metas.values()} == {"lab-0000000000000000001"}
    assert len({meta.directory_id for meta in metas.values()}) == 3
    assert not list(tmp_path.rglob("*.tmp"))


def test_formatting_again_is_refused_without_ignore_formatted(broker_file, tmp_path: Path) -> None:
    config = load_broker(broker_file())
    storage.format(config, "c")
    with pytest.raises(ConfigError) as raised:
        storage.format(config, "c")
    assert str(raised.value) == (
        f"Log directory {tmp_path / 'metadata'} is already formatted. "
        "Use --ignore-formatted to ignore this directory and format the others."
    )
    assert storage.format(config, "c", ignore_formatted=True) == ["All of the log directories are already formatted."]


def test_a_new_directory_is_formatted_beside_the_old_ones(broker_file, tmp_path: Path) -> None:
    storage.format(load_broker(broker_file()), "c")
    config = load_broker(broker_file({"log.dirs": f"{tmp_path / 'd0'},{tmp_path / 'd2'}"}))
    assert storage.format(config, "c", ignore_formatted=True) == [
        f"Formatting data directory {tmp_path / 'd2'} with metadata.version 4.3-IV0."
    ]


def test_a_directory_of_another_cluster_or_node_is_never_ignored(broker_file) -> None:
    storage.format(load_broker(broker_file()), "c")
    with pytest.raises(ConfigError, match="was formatted for node 1 of cluster c, not for node 1 of other"):
        storage.format(load_broker(broker_file()), "other", ignore_formatted=True)
    config = load_broker(broker_file({"node.id": "2"}))
    with pytest.raises(ConfigError, match="was formatted for node 1 of cluster c, not for node 2 of c"):
        storage.format(config, "c", ignore_formatted=True)
    with pytest.raises(ConfigError, match=r"was formatted for node 1, but .* is of node 2"):
        meta_properties.verify(config.all_directories(), config.node_id, config.source)


@pytest.mark.parametrize("cluster_id", ["", "two words", "-dash", "x" * 65])
def test_a_bad_cluster_id_is_refused(broker_file, cluster_id: str) -> None:
    with pytest.raises(ConfigError, match="is not a cluster id"):
        storage.format(load_broker(broker_file()), cluster_id)


def test_an_unwritable_place_is_named(broker_file, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = load_broker(broker_file({"metadata.log.dir": str(tmp_path / "file" / "below")}))
    with pytest.raises(ConfigError, match=r"cannot (format|read) .*below"):
        storage.format(config, "c")


def test_info_lists_directories_and_problems(broker_file, tmp_path: Path) -> None:
    config = load_broker(broker_file())
    assert [str(tmp_path / "d0") in problem for problem in storage.info(config).problems] == [False, True, False]
    storage.format(config, "c")
    info = storage.info(config)
    assert info.directories == config.all_directories()
    assert info.problems == ()
    assert info.metadata is not None
    directory_id = to_text(info.metadata.directory_id)
    assert info.metadata.as_dict() == {"cluster.id": "c", "directory.id": directory_id, "node.id": 1, "version": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version=0\n", "version=0: expected 1"),
        ("version=1\nnode.id=1\n", "does not set cluster.id"),
        ("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=short\n", "is not an id"),
        ("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n", "is reserved"),
    ],
)
def test_a_damaged_identity_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(ConfigError, match=message):
        meta_properties.read(tmp_path)


def test_a_copied_directory_is_found_out(tmp_path: Path) -> None:
    meta = meta_properties.MetaProperties("c", 1, os.urandom(16))
    for name in ("a", "b"):
        meta_properties.write(tmp_path / name, meta)
    with pytest.raises(ConfigError, match="have the same"):
        meta_properties.verify([tmp_path / "a", tmp_path / "b"], 1, "f")


def test_random_ids_are_kafka_ids() -> None:
    assert len(from_text(storage.random_cluster_id())) == 16


def initial(text: str, config: NodeConfig) -> initial_voters.InitialVoters:
    return initial_voters.choose(config, initial_controllers=text)


def test_every_initial_controller_writes_the_same_voters_and_takes_its_own_directory_id(dynamic_file, tmp_path: Path) -> None:
    text = "3000@127.0.0.1:19093:GDAXWlNIRRKoB5wdxbZcYg,3001@127.0.0.1:19094:pMTZEsB7QmCgsDzRHlrVcQ"
    changes = (
        {"node.id": "3000", "metadata.log.dir": str(tmp_path / "a")},
        {
            "node.id": "3001",
            "metadata.log.dir": str(tmp_path / "b"),
            "listeners": "CONTROLLER://127.0.0.1:19094,GRPC://127.0.0.1:19101",
        },
    )
    infos = []
    for change in changes:
        config = load_controller(dynamic_file(change))
        assert storage.format(config, "lab", initial=initial(text, config)) == [
            f"Formatting dynamic metadata voter directory {change['metadata.log.dir']} with metadata.version 4.3-IV0."
        ]
        infos.append(storage.info(config))
    assert [to_text(info.metadata.directory_id) for info in infos if info.metadata] == [
        "GDAXWlNIRRKoB5wdxbZcYg",
        "pMTZEsB7QmCgsDzRHlrVcQ",
    ]
    quorum = {"epoch": 0, "generation": 0, "kraft.version": 1, "log.end": 0, "log.epoch": 0, "log.start": 0, "voters": text}
    assert [info.quorum.as_dict() for info in infos if info.quorum] == [quorum, quorum]


def test_a_controller_that_joins_later_has_no_voters_and_a_random_directory_id(dynamic_file, tmp_path: Path) -> None:
    config = load_controller(dynamic_file())
    chosen = initial_voters.choose(config, no_initial_controllers=True)
    assert storage.format(config, "lab", initial=chosen) == [
        f"Formatting metadata directory {tmp_path / 'metadata'} with metadata.version 4.3-IV0."
    ]
    info = storage.info(config)
    assert info.quorum is not None
    assert info.quorum.as_dict() == {
        "epoch": 0,
        "generation": 0,
        "kraft.version": 0,
        "log.end": 0,
        "log.epoch": 0,
        "log.start": 0,
    }
    assert info.problems == ()


def test_a_directory_never_counts_as_formatted_without_its_voters(dynamic_file, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_controller(dynamic_file())

    def full(*_: object) -> None:
        raise StorageFull("no space left")

    monkeypatch.setattr(storage, "write_bootstrap", full)
    with pytest.raises(ConfigError, match=r"cannot format .*metadata: no space left"):
        storage.format(config, "lab", initial=initial_voters.choose(config, standalone=True))
    assert meta_properties.read(config.metadata_log_dir) is None


def test_standalone_is_ignored_with_the_directory_it_is_for(dynamic_file) -> None:
    config = load_controller(dynamic_file())
    storage.format(config, "lab", initial=initial_voters.choose(config, standalone=True))
    again = initial_voters.choose(config, standalone=True)
    assert storage.format(config, "lab", True, again) == ["All of the log directories are already formatted."]


def test_info_reports_a_bootstrap_checkpoint_that_cannot_be_read(dynamic_file) -> None:
    config = load_controller(dynamic_file())
    storage.format(config, "lab", initial=initial_voters.choose(config, standalone=True))
    (path,) = config.metadata_log_dir.glob("*/*.checkpoint")
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    (problem,) = storage.info(config).problems
    assert str(path) in problem
