"""Properties of a local cluster at later starts: kept, changed, taken away, and edited by hand."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.config import properties
from kraftlab.config.errors import ConfigError
from kraftlab.config.models import load_any
from kraftlab.lab import ClusterError, cluster_plan, layout
from kraftlab.lab.node_files import MAKES_THE_CLUSTER, WantedValues, merge

pytestmark = pytest.mark.cluster

RETENTION = "log.retention.ms"
AUTHORIZER = "authorizer.class.name"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
BROKERS = ("broker-0", "broker-1")


class Cluster:
    """The files of a cluster of one controller and two brokers, without its processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def start(self, *unset: str, proxies: bool = False, **given: str) -> list[str]:
        """Lay the cluster out as `kraftlab up` does, and return what it says. A property's dots are written as `_`."""
        said: list[str] = []
        plan = layout.plan(self.directory, *(None if self.plan else number for number in (1, 2, 1)))
        plan = plan.behind_proxies() if proxies else plan.without_proxies()
        named = {name.replace("_", "."): value for name, value in given.items()}
        layout.write(self.directory, plan, named, unset=unset, say=said.append)
        return said

    @property
    def plan(self) -> cluster_plan.ClusterPlan | None:
        return cluster_plan.load(self.directory)

    def path(self, node: str) -> Path:
        return self.directory / node / "server.properties"

    def values(self, node: str = "broker-0") -> dict[str, str]:
        return properties.load(self.path(node))

    def edit(self, node: str, old: str, new: str) -> None:
        text = self.path(node).read_text()
        assert old in text
        self.path(node).write_text(text.replace(old, new))


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "lab")


def test_the_access_rules_of_a_cluster_hold_at_each_start(cluster: Cluster) -> None:
    cluster.start(authorizer_class_name=STANDARD, super_users="User:admin", listener_name_grpc_users="admin:s3cret")
    said = cluster.start()
    assert said == [f"kept from earlier starts: {AUTHORIZER}, listener.name.grpc.users, super.users"]
    for node in ("controller-3000", *BROKERS):
        config = load_any(cluster.path(node))
        assert config.access.is_enabled and "User:admin" in config.access.super_users
        assert config.users.principal("admin", "s3cret") == "User:admin"


def test_a_new_value_counts_from_then_on_and_a_line_says_so(cluster: Cluster) -> None:
    assert cluster.start(log_retention_ms="1000") == [f"{RETENTION}: 1000, kept for later starts"]
    assert cluster.start(log_retention_ms="2000") == [f"{RETENTION}: 1000 → 2000, kept for later starts"]
    assert cluster.start(num_partitions="3")[0] == "num.partitions: 3, kept for later starts"
    assert (cluster.values()[RETENTION], cluster.values()["num.partitions"]) == ("2000", "3")
    assert "listener.name.grpc.users: (hidden), kept for later starts" in cluster.start(listener_name_grpc_users="a:b")


def test_a_property_is_taken_away_by_name(cluster: Cluster) -> None:
    cluster.start(log_retention_ms="1000", num_partitions="3")
    assert cluster.start(RETENTION)[0] == f"{RETENTION}: 1000 no longer, the nodes take their default"
    assert RETENTION not in cluster.values()
    assert cluster.start() == ["kept from earlier starts: num.partitions"]
    with pytest.raises(ClusterError, match=f"no property {RETENTION} is kept with this cluster; kept are: num.partitions"):
        cluster.start(RETENTION)
    with pytest.raises(ClusterError, match="to be set and taken away at once"):
        cluster.start("num.partitions", num_partitions="4")


def test_a_value_that_no_node_takes_is_not_kept_and_changes_no_file(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"server\.properties of controller-3000 sets non.sense, an unknown key"):
        cluster.start(non_sense="1")
    assert cluster.plan is None
    cluster.start(log_retention_ms="1000")
    before = cluster.path("broker-0").read_bytes(), (cluster.directory / "cluster.json").read_bytes()
    with pytest.raises(ConfigError, match="Not a number"):
        cluster.start(log_retention_ms="soon")
    assert before == (cluster.path("broker-0").read_bytes(), (cluster.directory / "cluster.json").read_bytes())


@pytest.mark.parametrize("key", sorted(MAKES_THE_CLUSTER))
def test_a_key_that_makes_the_cluster_cannot_be_given_for_all_nodes(cluster: Cluster, key: str) -> None:
    message = f"^{re.escape(key)} makes the cluster and differs between nodes; it cannot be set with --property$"
    with pytest.raises(ClusterError, match=message):
        cluster.start(**{key: "1"})
    assert not cluster.directory.exists()


def test_every_managed_key_but_the_rack_is_refused(tmp_path: Path) -> None:
    managed = set[str]()
    for voters_in_log in (False, True):
        plan = layout.plan(tmp_path, 1, 1, 1, voters_in_log=voters_in_log)
        managed.update(*(layout.managed_properties(tmp_path, plan, node) for node in plan.nodes))
    assert managed - MAKES_THE_CLUSTER == {"broker.rack"}


def test_a_key_that_makes_the_cluster_and_is_kept_from_before_can_be_taken_away(cluster: Cluster) -> None:
    cluster.start()
    path = cluster.directory / cluster_plan.FILE_NAME
    held = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**held, "properties": {"log.dirs": "/x"}}))
    with pytest.raises(ClusterError, match=r"take it away with --unset-property log\.dirs$"):
        cluster.start()
    cluster.start("log.dirs")
    assert cluster.values()["log.dirs"] == str(cluster.directory / "broker-0" / "d0")


def test_lines_and_comments_of_one_node_stay_through_every_later_start(cluster: Cluster) -> None:
    cluster.start(log_retention_ms="1000")
    cluster.edit("broker-0", f"{RETENTION}=1000", f"! slow disk\n{RETENTION} : 5")
    with cluster.path("broker-0").open("a") as file:
        file.write("# mine\nnum.io.threads = 8\n")
    before = cluster.path("broker-0").read_bytes()
    for _ in range(2):
        said = cluster.start()
        assert f"broker-0: {RETENTION} stays 5, as edited by hand; the cluster's value is 1000" in said
        assert cluster.path("broker-0").read_bytes() == before
    cluster.start(proxies=True, num_partitions="2")
    text = cluster.path("broker-0").read_text()
    assert f"! slow disk\n{RETENTION} : 5\n" in text and "# mine\nnum.io.threads = 8\n" in text
    assert cluster.values()["num.partitions"] == "2"
    assert cluster.values("broker-1")[RETENTION] == "1000" and "num.io.threads" not in cluster.values("broker-1")


def test_a_line_removed_by_hand_stays_removed(cluster: Cluster) -> None:
    cluster.start(log_retention_ms="1000")
    cluster.edit("broker-0", f"{RETENTION}=1000\n", "")
    for _ in range(2):
        assert f"broker-0: {RETENTION} stays without a line, as edited by hand; the cluster's value is 1000" in cluster.start()
        assert RETENTION not in cluster.values() and cluster.values("broker-1")[RETENTION] == "1000"


def test_a_value_for_all_nodes_counts_for_an_edited_one_too_and_a_line_says_so(cluster: Cluster) -> None:
    cluster.start(log_retention_ms="1000")
    cluster.edit("broker-0", "=1000", "=5")
    said = cluster.start(log_retention_ms="2000")
    assert f"broker-0: {RETENTION} is 2000 now, no longer 5, as edited by hand" in said
    assert cluster.values()[RETENTION] == "2000"
    assert cluster.start() == [f"kept from earlier starts: {RETENTION}"]


@pytest.mark.parametrize("key", ["node.id", "listeners", "log.dirs", "controller.quorum.bootstrap.servers", "broker.rack"])
def test_an_edit_of_a_key_that_makes_the_cluster_is_refused_by_name_and_undone_by_removing_it(cluster: Cluster, key: str) -> None:
    cluster.start()
    text, value = cluster.path("broker-0").read_text(), cluster.values()[key]
    lines = [f"{key}=elsewhere" if line.startswith(f"{key}=") else line for line in text.splitlines()]
    cluster.path("broker-0").write_text("\n".join(lines))
    for _ in range(2):
        with pytest.raises(ClusterError) as refused:
            cluster.start(num_partitions="3")
        assert f"{cluster.path('broker-0')}: {key}=elsewhere was edited by hand" in str(refused.value)
        assert f"needs {key}={value}; write that, or remove the line" in str(refused.value)
    cluster.path("broker-0").write_text("\n".join(line for line in lines if not line.startswith(f"{key}=")))
    assert cluster.start() == [f"broker-0: {key} is {value} again; its line had been removed"]
    assert cluster.values()[key] == value


def test_ports_and_paths_that_change_are_no_edits(cluster: Cluster) -> None:
    cluster.start(proxies=True, log_retention_ms="1000")
    cluster.edit("broker-1", "=1000", "=5")
    cluster.start()
    moved = cluster.directory.rename(cluster.directory.parent / "moved")
    cluster.directory = moved
    cluster.start(proxies=True)
    assert cluster.values()["log.dirs"] == str(moved / "broker-0" / "d0")
    assert cluster.values("broker-1")[RETENTION] == "5"


def test_a_crash_between_the_files_counts_for_no_edit(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The crash comes before each write in turn; the start after it has other ports and another value again."""
    for crash in range(5):
        cluster.start(log_retention_ms="1000")
        left, write = crash, layout.write_durably

        def writes(path: Path, text: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(5, "crash", str(path))
            write(path, text)  # noqa: B023

        with monkeypatch.context() as patch, pytest.raises(ClusterError, match="crash"):
            patch.setattr(layout, "write_durably", writes)
            cluster.start(proxies=True, log_retention_ms="2000")
        said = cluster.start(log_retention_ms="3000")
        assert not any("edited" in line or "again" in line for line in said), (crash, said)
        assert {cluster.values(node)[RETENTION] for node in BROKERS} == {"3000"}


@pytest.mark.parametrize("damaged", [None, b"", b"\n# gone\n"])
def test_a_lost_file_is_written_again_with_the_properties_that_are_kept(cluster: Cluster, damaged: bytes | None) -> None:
    cluster.start(log_retention_ms="1000")
    values = cluster.values()
    if damaged is None:
        cluster.path("broker-0").unlink()
    else:
        cluster.path("broker-0").write_bytes(damaged)
    cluster.start()
    assert cluster.values() == values


def test_a_cluster_of_an_older_release_keeps_what_its_files_say(cluster: Cluster) -> None:
    """Its cluster.json has neither properties nor what was written."""
    cluster.start(log_retention_ms="1000")
    path = cluster.directory / "cluster.json"
    old = msgspec.json.decode(path.read_bytes())
    del old["properties"], old["written"]
    path.write_bytes(msgspec.json.encode(old))
    for _ in range(2):
        cluster.start()
        assert {cluster.values(node)[RETENTION] for node in BROKERS} == {"1000"}


KEYS = st.sampled_from("abcd")
VALUES = st.dictionaries(KEYS, st.sampled_from("12"), max_size=4)


@given(VALUES, VALUES, VALUES, st.sets(KEYS), st.sets(KEYS))
def test_no_edit_is_lost_without_a_word(
    found: dict[str, str], written: dict[str, str], wanted: dict[str, str], managed: set[str], named: set[str]
) -> None:
    merged = merge(found, (written,), WantedValues(wanted, managed, named))
    for key in {*found, *written, *wanted}:
        is_edited = found.get(key) != written.get(key)
        kept = merged.values.get(key) == found.get(key)
        said = key in merged.refused or any(line.startswith(f"{key} ") for line in merged.remarks)
        assert kept or said or not is_edited
        if not is_edited:
            assert merged.values.get(key) == wanted.get(key) and not said
