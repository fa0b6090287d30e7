"""`kraftlab log-dirs`: tables, documents and exit codes, from the answers of brokers."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli import main
from kraftlab.cli.partitions import log_dir_reports, log_dir_text
from kraftlab.cli.partitions.screen import Screen
from kraftlab.client.entries import read
from kraftlab.client.log_dirs import LogDirFilter, moves_of
from kraftlab.client.results import AllLogDirs, BrokerLogDirs, LogDirMove, LogDirReplica, cluster_of, log_dirs_of, topics_of

MIB = 1024 * 1024


def broker(number: int, left: int = 10 * MIB) -> BrokerLogDirs:
    """t-0 moves from /d0 to /d1 if something is `left`; t-1 is filled from its leader; /d2 is offline, /d1 cordoned."""
    response = pb.DescribeLogDirsResponse(broker_id=number, move_limit=5 * MIB)
    first = response.results.add(log_dir="/d0", directory_id="A", total_bytes=100 * MIB, usable_bytes=60 * MIB)
    topic = first.topics.add(name="t")
    topic.partitions.add(partition_index=0, partition_size=30 * MIB, bytes_left=-1, bytes_per_second=-1, started_ms=-1)
    topic.partitions.add(
        partition_index=1, partition_size=MIB, offset_lag=7, bytes_left=2 * MIB, bytes_per_second=MIB, started_ms=5
    )
    second = response.results.add(log_dir="/d1", directory_id="B", total_bytes=100 * MIB, usable_bytes=50 * MIB, is_cordoned=True)
    if left:
        future = second.topics.add(name="t").partitions.add(partition_index=0, partition_size=20 * MIB, is_future_key=True)
        future.source_log_dir = "/d0"
        future.offset_lag, future.bytes_left, future.bytes_per_second, future.started_ms = 70, left, 4 * MIB, 6
    response.results.add(
        log_dir="/d2", directory_id="C", total_bytes=-1, usable_bytes=-1, error_code=56, error_message="bad disk"
    )
    second.kept_copies.add(path="/d1/u-3", topic_name="u", partition_index=3, size_bytes=9, log_end_offset=4)
    return BrokerLogDirs(number, log_dirs_of(response), response.move_limit)


EVERYONE = AllLogDirs({0: broker(0)}, {2: "is down"})


class Cluster:
    """Stands in for the client: brokers 0 and 1, which is fenced, and topic t with two partitions."""

    answers: list[AllLogDirs] = []
    asked: list[tuple[LogDirFilter, list[int]]] = []

    def __init__(self, servers: str, **_: object) -> None: ...

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def describe_cluster(self, *, include_fenced_brokers: bool) -> Any:
        brokers = [pb.DescribedBroker(broker_id=0), pb.DescribedBroker(broker_id=1, is_fenced=True)]
        return cluster_of(pb.DescribeClusterResponse(brokers=brokers))

    def describe_topics(self, names: list[str]) -> Any:
        known = {"t": [pb.DescribedPartition(partition_index=number) for number in range(2)]}
        topics = [
            pb.DescribedTopic(name=name, error_code=0 if name in known else 3, partitions=known.get(name)) for name in names
        ]
        return read(pb.DescribeTopicPartitionsResponse(topics=topics), topics_of)

    def all_log_dirs(self, wanted: LogDirFilter, *, brokers: list[int]) -> AllLogDirs:
        self.asked.append((wanted, brokers))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlab.client.AdminClient", Cluster)
    monkeypatch.setattr(log_dir_reports, "WATCH_S", 0.0)
    monkeypatch.setattr(Cluster, "answers", [EVERYONE])
    monkeypatch.setattr(Cluster, "asked", [])


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.run(["log-dirs", "--bootstrap-server", "127.0.0.1:9092", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_directories_are_a_table_with_totals_moves_copies_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--describe", "--format", "table")
    assert out.splitlines() == [
        "BROKER  LOG DIR  STATE     REPLICAS  INCOMING  SIZE      FREE      OF",
        "0       /d0      online    2         0         31.0 MiB  60.0 MiB  100.0 MiB",
        "0       /d1      cordoned  0         1         20.0 MiB  50.0 MiB  100.0 MiB",
        "0       /d2      offline   -         -         -         -         -",
        "0       all                2         1         51.0 MiB",
        "Broker 0: /d2 is offline: bad disk",
        "",
        "REPLICA  BROKER  FROM    TO   LEFT      RATE       ETA  LAG  LIMIT      PROBLEM",
        "t-0      0       /d0     /d1  10.0 MiB  4.0 MiB/s  2s   70   5.0 MiB/s  -",
        "t-1      0       leader  /d0  2.0 MiB   1.0 MiB/s  2s   -    -          -",
        "2 replicas, 12.0 MiB left, 5.0 MiB/s, 2s to go",
        "",
        "Broker 0 has a copy of u-3 (9 B, offsets up to 4; kept, since the replica's own log may be on an offline disk): /d1/u-3",
        "Broker 1 is fenced and was not asked; --broker-list asks it all the same.",
    ]
    assert (code, err.splitlines()[0]) == (1, "Broker 2 is missing here: is down")


def doubtful(number: int, end: int, doubt: str = "no topic id") -> BrokerLogDirs:
    response = pb.DescribeLogDirsResponse(broker_id=number)
    found = response.results.add(log_dir="/d0", total_bytes=MIB, usable_bytes=MIB)
    found.kept_copies.add(path="/d0/u-3", topic_name="u", partition_index=3, size_bytes=9, log_end_offset=end, doubt=doubt)
    return BrokerLogDirs(number, log_dirs_of(response), None)


def test_replicas_in_doubt_are_counted_and_the_next_step_names_the_longest_copy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {0: doubtful(0, 4), 1: doubtful(1, 7), 2: doubtful(2, -1, "its directory is missing")}
    monkeypatch.setattr(Cluster, "answers", [AllLogDirs(found, {})])
    _, out, _ = run(capsys, "--describe", "--format", "table")
    assert "online, 1 in doubt" in out.splitlines()[1]
    assert out.splitlines()[5:9] == [
        "Broker 0 has a copy of u-3 (9 B, offsets up to 4; no topic id): /d0/u-3",
        "Broker 1 has a copy of u-3 (9 B, offsets up to 7; no topic id): /d0/u-3",
        "Broker 2 has no directory /d0/u-3 of u-3: its directory is missing",
        "u-3 is in doubt and offline on brokers 0,1,2. Once another replica leads, it is filled again by itself. If none leads, "
        "promote the copy on broker 1, whose log end offset 7 is the highest: kraftlab log-dirs --promote u-3 --broker 1",
    ]


def test_where_no_person_reads_the_lines_are_those_of_kafkas_tool(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys, "--describe")
    asking, received, document = out.splitlines()
    assert (asking, received) == (
        "Querying brokers for log directories information",
        "Received log directory information from brokers 0",
    )
    assert document.startswith(
        '{"brokers":[{"broker":0,"logDirs":[{"partitions":[{"partition":"t-0","size":31457280,"offsetLag":0,"isFuture":false},'
    )
    offline = '{"partitions":[],"error":"org.apache.kafka.common.errors.KafkaStorageException","logDir":"/d2"}'
    assert document.endswith(offline + ']}],"version":1}')
    assert "copy of u-3" in err


def test_json_has_what_kafka_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, "--describe", "--json")[1])
    found = {each["logDir"]: each for each in document["brokers"][0]["logDirs"]}
    assert [(each["isCordoned"], each["replicas"], each["replicaBytes"]) for each in found.values()] == [
        (False, 2, 31 * MIB),
        (True, 0, 20 * MIB),
        (False, 0, 0),
    ]
    assert (found["/d0"]["usableBytes"], found["/d2"]["usableBytes"], found["/d2"]["errorMessage"]) == (60 * MIB, -1, "bad disk")
    assert document["silentBrokers"] == [{"broker": 2, "reason": "is down"}]


def test_filters_go_to_the_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "--describe", "--broker-list", "0", "--topic-list", "t", "--partition-list", "t-1,t-0")
    run(capsys, "--moves")
    run(capsys, "--replicas", "--dir-list", "/d0,B")
    assert Cluster.asked == [
        (LogDirFilter(topics=["t"], partitions=[("t", 1), ("t", 0)]), [0]),
        (LogDirFilter(only_filling=True), [0, 1]),
        (LogDirFilter(log_dirs=("/d0", "B")), [0, 1]),
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--describe", "--topic-list", "nope"), "ERROR: The given topics do not exist from --topic-list: nope"),
        (("--moves", "--partition-list", "nope-1"), "ERROR: The given topics do not exist from --partition-list: nope"),
        (("--moves", "--partition-list", "t-7"), "ERROR: The given partitions do not exist from --partition-list: t-7"),
        (("--moves", "--partition-list", "t"), "ERROR: --partition-list: 't' is not TOPIC-PARTITION, for example orders-0"),
        (
            ("--describe", "--broker-list", "0,9"),
            "ERROR: The given brokers do not exist from --broker-list: 9. Current existent brokers: 0,1",
        ),
        (("--describe", "--moves"), "Error: give one of --describe, --replicas, --moves, --online, --promote and --drop"),
        (("--describe", "--watch"), "Error: --watch refreshes --moves; add --moves"),
        (("--moves", "--format", "kafka"), "Error: --format is the format of --describe; leave it out, or take --json"),
    ],
)
def test_an_option_for_something_unknown_or_for_nothing_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    code, out, err = run(capsys, *arguments)
    expected = 1 if "do not exist" in text else 64
    assert (code, out, err) == (expected, "", f"{text}\n")


def test_a_directory_that_no_broker_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Cluster.answers = [AllLogDirs({0: broker(0)}, {})]
    assert run(capsys, "--replicas", "--dir-list", "/nope,B")[2] == (
        "ERROR: The given log directories do not exist from --dir-list: /nope. Current existent log directories: /d0, /d1, /d2\n"
    )


def test_replicas_have_their_present_and_their_future_directory(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--replicas")
    assert (code, out.splitlines()) == (
        1,
        [
            "REPLICA  BROKER  LOG DIR  LAG  FUTURE LOG DIR  FUTURE LAG",
            "t-0      0       /d0      0    /d1             70",
            "t-1      0       /d0      7    -               -",
        ],
    )
    document = json.loads(run(capsys, "--replicas", "--json")[1])
    assert document["replicas"][0]["future_log_dir"] == "/d1"
    assert document["replicas"][1]["future_offset_lag"] is None
    assert document["silent_brokers"] == [{"broker": 2, "reason": "is down"}]


def test_moves_are_watched_until_none_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    still = AllLogDirs({0: broker(0)}, {})
    Cluster.answers = [still, still, AllLogDirs({0: BrokerLogDirs(0, (), None)}, {})]
    code, out, _ = run(capsys, "--moves", "--watch")
    assert (code, out.count("2 replicas, 12.0 MiB left"), out.splitlines()[-1]) == (0, 1, "No replica is being filled.")
    Cluster.answers = [still, AllLogDirs({0: BrokerLogDirs(0, (), None)}, {})]
    first, last = map(json.loads, run(capsys, "--moves", "--watch", "--json")[1].splitlines())
    assert [move["between_log_dirs"] for move in first["moves"]] == [True, False]
    assert (first["bytes_left"], first["eta_ms"], last["moves"], first["time_ms"] <= last["time_ms"]) == (
        12 * MIB,
        2000,
        [],
        True,
    )


def test_a_move_without_a_rate_has_no_time_to_go() -> None:
    [first, second] = moves_of(AllLogDirs({0: broker(0)}, {})).moves
    assert log_dir_text.move_lines([second])[-1] == "1 replica, 2.0 MiB left, 1.0 MiB/s, 2s to go"
    stuck = LogDirMove(1, "/d0", LogDirReplica("t", 1, 1, 1, False, 9, 0.0, 5, "", 1, None))
    assert log_dir_text.move_lines([first, stuck])[-1] == "2 replicas, 10.0 MiB left, 4.0 MiB/s"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_screen_rewrites_its_lines_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "5")
    monkeypatch.setenv("LINES", "6")
    terminal = Terminal()
    screen = Screen(terminal)
    screen.show(["abcdefg", "h"])
    screen.show(["1", "2", "3", "4", "5", "6"])
    assert terminal.getvalue() == "abcde\nh\n\x1b[2F\x1b[J1\n2\n… and 3 more\n6\n"


def test_a_screen_prints_changes_where_no_person_reads() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    for lines in (["a"], ["a"], ["b"]):
        screen.show(lines)
    assert stream.getvalue() == "a\n\nb\n"
