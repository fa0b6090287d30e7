from __future__ import annotations

import pytest

from kraftlab.cli.reassign.plan import Placement, PlanError, format_plan, parse_brokers, parse_plan, parse_topics


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("041", "bad-version.json"),
        ("042", "bad-empty.json"),
        ("043", "bad-dup.json"),
        ("044", "bad-dup-replica.json"),
        ("047", "bad-dirs.json"),
    ],
)
def test_a_bad_file_is_refused_with_kafkas_text(transcript, captured, name: str, file: str) -> None:
    with pytest.raises(PlanError) as raised:
        parse_plan(captured(file))
    assert f"Error: {raised.value}" == transcript(name).stdout[0]


def test_broken_json_is_refused_with_its_place(captured) -> None:
    with pytest.raises(PlanError, match=r"^bad\.json is not valid JSON: .*byte 1"):
        parse_plan(captured("bad-json.json"), "bad.json")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"partitions":[{"topic":"t","partition":"0","replicas":[1]}]}', "not of the expected shape"),
        (b'{"partitions":[{"topic":"t","partition":0}]}', "missing required field `replicas`"),
        (b'{"partitions":[{"topic":"t","partition":0,"replicas":[]}]}', "Partition replica list cannot be empty"),
        (b'{"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["d0"]}]}', "neither an absolute path nor"),
        (b"{}", "Partition reassignment list cannot be empty"),
        (b'{"partitions":[{"topic":"t","partition":-1,"replicas":[1]}]}', r"^The file has the partition -1 at \.partitions\[0\]"),
        (b'{"partitions":[{"topic":"t","partition":0,"replicas":[2147483648]}]}', r"the broker 2147483648 at \.partitions\[0\]"),
    ],
)
def test_other_faults_are_refused_with_their_place(data: bytes, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        parse_plan(data)


def test_a_plan_is_sorted_and_its_directories_are_filled_in() -> None:
    plan = parse_plan(
        b'{"partitions":[{"topic":"b","partition":10,"replicas":[1]},{"topic":"b","partition":9,"replicas":[2],'
        b'"log_dirs":["/d"],"more":1},{"topic":"a","partition":0,"replicas":[3]}],"version":1}'
    )
    assert [placement.name for placement in plan.partitions] == ["a-0", "b-9", "b-10"]
    assert plan.moves() == {("b", 9, 2): "/d"}
    assert plan.broker_ids() == (1, 2, 3)


def test_plans_are_written_as_kafka_writes_them(transcript) -> None:
    current, proposed = (line for line in transcript("018").stdout if line.startswith("{"))
    for line in (current, proposed):
        assert format_plan(parse_plan(line.encode()).partitions) == line


def test_a_placement_without_directories_is_written_with_any() -> None:
    assert format_plan([Placement("t", 0, (1, 2))]) == (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    )


def test_lists_of_topics_and_brokers(captured) -> None:
    assert parse_topics(captured("topics-to-move.json")) == ("orders", "payments", "clicks")
    assert parse_brokers("0,1,2") == (0, 1, 2)
    with pytest.raises(PlanError, match=r"^Broker list contains duplicate entries: \[1\]$"):
        parse_brokers("1,1")
    with pytest.raises(PlanError, match=r"^List of topics to reassign contains duplicate entries: \[a\]$"):
        parse_topics(b'{"topics":[{"topic":"a"},{"topic":"a"}]}')
    with pytest.raises(PlanError, match="expected broker ids separated by commas"):
        parse_brokers("0;1")


def test_the_document_of_generate_is_a_plan() -> None:
    current, proposed = (format_plan([Placement("t", 0, (broker,))]) for broker in (1, 2))
    assert parse_plan(f'{{"current":{current},"proposed":{proposed}}}'.encode()).targets() == {("t", 0): (2,)}
