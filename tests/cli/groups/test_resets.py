"""Specifications of `--reset-offsets`, and the usage of the command, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlab.cli.groups.command import check_usage
from kraftlab.cli.groups.resets import csv_lines, duration_ms, moment_ms, read_csv, topic_partitions, within
from kraftlab.cli.output import BadArgument, BadInput, WrongUse
from kraftlab.client.groups import assigned_partitions

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), min_size=1)
offsets = st.dictionaries(st.tuples(names, st.integers(0, 99)), st.integers(0, 10**17), min_size=1)


@pytest.mark.parametrize(
    ("texts", "milliseconds"),
    [
        ("P1D PT24H pt1440m", 86_400_000),
        ("p1dt2h3m4.5s", 93_784_500),
        ("-PT1S PT-1S", -1000),
        ("PT-0.5S", -500),
        ("P0D", 0),
    ],
)
def test_a_duration_is_read_as_java_reads_it(texts: str, milliseconds: int) -> None:
    assert {duration_ms(text) for text in texts.split()} == {milliseconds}


@pytest.mark.parametrize(
    ("texts", "milliseconds"),
    [
        ("1970-01-01T00:00:01.002 1970-01-01T00:00:01.002Z", 1002),
        ("1970-01-01T02:00:00.000+02:00 1970-01-01T02:00:00.000+02", 0),
        ("2024-02-29T23:59:59.999", 1_709_251_199_999),
    ],
)
def test_a_time_without_a_zone_is_utc(texts: str, milliseconds: int) -> None:
    assert {moment_ms(text) for text in texts.split()} == {milliseconds}


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "P1W", "P1H", "P1DT", "P9999999999D", "2024-02-30T00:00:00.000", "PT1.S"])
def test_what_is_neither_a_duration_nor_a_time_is_refused(text: str) -> None:
    with pytest.raises(BadArgument, match="PnDTnHnMnS"):
        duration_ms(text)
    with pytest.raises(BadArgument, match="is not a time"):
        moment_ms(text)


def test_topics_and_partitions_are_gathered() -> None:
    assert topic_partitions(["a:2,0", "b", "a:1", "b:3"]) == {"a": [0, 1, 2], "b": None}


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:x", "a:1,", "a:-1", "a:1:2"])
def test_what_names_no_partitions_is_refused(text: str) -> None:
    with pytest.raises(BadArgument, match="expected topic name and partitions"):
        topic_partitions([text])


@given(st.integers(-20, 20), st.integers(0, 9), st.integers(0, 9))
def test_an_offset_stays_within_the_log(offset: int, first: int, size: int) -> None:
    found, warning = within(offset, first, first + size, "t-0")
    assert first <= found <= first + size
    assert (found == offset) == (warning is None)


@given(st.dictionaries(names, offsets, min_size=1))
def test_exported_offsets_are_read_again(resets: dict[str, dict[tuple[str, int], int]]) -> None:
    assert read_csv(csv_lines(resets, with_group=True), "file", []) == resets
    group, one = next(iter(resets.items()))
    assert read_csv(csv_lines({group: one}, with_group=False), "file", [group]) == {group: one}


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_bytes(b"t,0,\xff")
    with pytest.raises(BadInput, match="codec can't decode"), path.open(encoding="utf-8") as lines:
        read_csv(lines, "file", ["g"])


@pytest.mark.parametrize("row", ["t", "t,0", "t,x,1", "t,0,-1", "t,0,1.5", "g,t,0,1,2", "t,0,"])
def test_a_row_that_is_not_an_offset_is_named_with_its_line(row: str) -> None:
    with pytest.raises(BadInput, match="file, line 2: "):
        read_csv(["t,0,1", row], "file", ["g"])


@pytest.mark.parametrize(
    ("given_options", "text"),
    [
        ("list describe", "Command must include exactly one action"),
        ("describe", "Option [describe] takes one of these options: [group], [all-groups]"),
        ("describe group members state", "Option [describe] takes at most one of these options: [members], [offsets], [state]"),
        ("describe group topic", 'Option "[topic]" can\'t be used with option "[describe]"'),
        ("delete group topic", "does not support topic-specific offset deletion"),
        ("delete-offsets group", "Option [delete-offsets] takes the following options: [group], [topic]"),
        ("reset-offsets group topic", "requires one of the following scenarios"),
        ("reset-offsets group to-latest", "One of the reset scopes should be defined: --all-topics, --topic."),
        ("reset-offsets group topic to-latest to-earliest", 'Option "[to-earliest]" can\'t be used with option "[to-latest]"'),
        ("reset-offsets group topic to-latest dry-run execute", "only accepts one of [execute] and [dry-run]"),
    ],
)
def test_options_that_do_not_go_together_are_refused_with_kafkas_text(given_options: str, text: str) -> None:
    with pytest.raises(WrongUse) as caught:
        check_usage(given_options.split())
    assert text in caught.value.text


def test_an_assignment_is_read_and_a_damaged_one_is_empty() -> None:
    data = b"\0\1\0\0\0\1\0\1t\0\0\0\2\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
    assert assigned_partitions(data) == (("t", 0), ("t", 1))
    assert all(assigned_partitions(data[:size]) == () for size in range(21))
    assert assigned_partitions(b"\0\1\x7f\xff\xff\xff") == ()
