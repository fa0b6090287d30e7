"""Texts of `kraftlab cluster`, and its errors for wrong arguments."""

from __future__ import annotations

import msgspec
import pytest

from kraftlab.cli import main
from kraftlab.cli.lab.cluster_text import Member, endpoint_lines

BROKERS = [
    Member(0, "127.0.0.1", 22100, "rack-0", "unfenced", "broker", 17, 12, (), 2),
    Member(10, "broker-10.example", 9092, None, "fenced", "broker", 99, None, ("a",), 2),
]


def test_brokers_are_a_table_with_their_state() -> None:
    assert endpoint_lines(BROKERS, False) == [
        "ID         HOST              PORT       RACK   STATE         ENDPOINT_TYPE",
        "0          127.0.0.1         22100      rack-0 unfenced      broker",
        "10         broker-10.example 9092       -      fenced        broker",
    ]


def test_the_long_table_has_epoch_last_contact_and_cordons() -> None:
    header, first, second = endpoint_lines(BROKERS, True)
    assert header.split()[-3:] == ["EPOCH", "LAST_CONTACT", "CORDONED"]
    assert first.split()[-5:] == ["17", "12", "ms", "ago", "-"]
    assert second.split()[-5:] == ["99", "-", "1", "of", "2"]


def test_controllers_have_no_state() -> None:
    lines = endpoint_lines([Member(3000, "127.0.0.1", 19094, None, "registered", "controller")], False)
    assert lines == [
        "ID         HOST      PORT       RACK       ENDPOINT_TYPE",
        "3000       127.0.0.1 19094      -          controller",
    ]


def test_no_members_are_an_empty_table() -> None:
    assert len(endpoint_lines([], True)) == 1


def test_json_has_one_object_per_member() -> None:
    (document, _) = msgspec.json.decode(msgspec.json.encode(BROKERS))
    assert (document["node_id"], document["state"], document["silent_ms"]) == (0, "unfenced", 12)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cluster-id"], "no cluster is up on this machine; start one"),
        (["cluster-id", "--bootstrap-server", "a:1", "--bootstrap-controller", "b:1"], "Exactly one of"),
        (
            ["list-endpoints", "--bootstrap-controller", "b:1", "--include-fenced-brokers"],
            "The option --include-fenced-brokers is only supported with --bootstrap-server option",
        ),
        (["unregister", "--bootstrap-server", "a:1"], "Missing option '--id'"),
        (["unregister", "--bootstrap-server", "a:1", "--id", "x"], "'x' is not a valid integer"),
    ],
)
def test_wrong_arguments_are_one_line_with_the_next_step(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["cluster", *arguments]) == (1 if said.startswith("no cluster is up") else 64)
    shown = capsys.readouterr().err
    assert said in shown and "See: kraftlab cluster" in shown
