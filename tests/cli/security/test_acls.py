"""`kraftlab acls`, and users of commands, against a cluster with an authorizer."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.cli import main
from kraftlab.cli.security import acls_command
from kraftlab.cli.security.acls_text import Options, described, document, listing, rules
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.lab import LocalCluster
from kraftlab.metadata.acls import Operation

CLUSTER = (1, 1, 1)
OVERRIDES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.grpc.users": "alice:alice-secret",
}
PATTERN = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"
ENTRY = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
RULE = {
    "resource_type": "TOPIC",
    "resource_name": "orders",
    "pattern_type": "LITERAL",
    "principal": "User:alice",
    "host": "*",
    "operation": "READ",
    "permission_type": "ALLOW",
}
ADD = ("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")


Run = Callable[..., Any]


@pytest.fixture
def run(run: Run) -> Iterator[Run]:
    """Afterwards there are no rules."""
    yield run
    rules = json.loads(run("acls", "--list", "--json").out)["acls"]
    for name in {rule["resource_name"] for rule in rules if rule["resource_type"] == "TOPIC"}:
        run("acls", "--remove", "--topic", name, "--resource-pattern-type", "any", "--force")
    run("acls", "--remove", "--cluster", "--force")
    run("acls", "--remove", "--group", "g", "--force")


def listed(run: Run, *arguments: str) -> list[dict[str, Any]]:
    document = json.loads(run("acls", "--list", "--json", *arguments).out)
    rules: list[dict[str, Any]] = document["acls"]
    return rules


def test_a_rule_is_added_listed_and_removed_with_kafkas_texts(run: Run) -> None:
    assert run("acls", *ADD) == (0, f"Adding ACLs for resource `{PATTERN}`: \n \t{ENTRY}\n\n", "")
    assert run("acls", *ADD) == (0, f"Acl (pattern={PATTERN}, entry={ENTRY}) already exists.\n", "")
    assert run("acls", "--list").out == f"Current ACLs for resource `{PATTERN}`:\n\t{ENTRY}\n\n"
    assert listed(run) == [RULE]
    removed = run("acls", "--remove", "--topic", "orders", "--force", "--json")
    assert json.loads(removed.out) == {"removed": [RULE]}
    assert run("acls", "--list") == (0, "", "")


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_a_removal_asks_for_confirmation(run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    run("acls", *ADD)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    ran = run("acls", "--remove", *ADD[1:])
    assert ran.code == (0 if answer else 1)
    assert ran.err.startswith("Nothing was removed: standard input ended") == (not answer)
    assert ran.out == f"Are you sure you want to remove ACLs: \n \t{ENTRY}\n from resource filter `{PATTERN}`? (y/n)\n"
    assert len(listed(run)) == left


def test_a_listing_is_of_resources_or_of_a_principal(run: Run) -> None:
    run("acls", *ADD)
    run("acls", "--add", "--deny-principal", "User:bob", "--topic", "ord", "--resource-pattern-type", "prefixed")
    assert [rule["resource_name"] for rule in listed(run, "--topic", "orders")] == ["orders"]
    assert [rule["resource_name"] for rule in listed(run, "--topic", "orders", "--resource-pattern-type", "match")] == [
        "ord",
        "orders",
    ]
    assert [rule["permission_type"] for rule in listed(run, "--principal", "User:bob")] == ["DENY"]
    assert run("acls", "--list", "--principal", "User:bob").out.startswith("ACLs for principal `User:bob`\n")


def test_producer_and_consumer_imply_operations(run: Run) -> None:
    run("acls", "--add", "--allow-principal", "User:alice", "--producer", "--idempotent", "--topic", "t")
    run("acls", "--add", "--allow-principal", "User:alice", "--consumer", "--topic", "t", "--group", "g")
    assert {(rule["resource_type"], rule["operation"]) for rule in listed(run)} == {
        ("TOPIC", "WRITE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "CREATE"),
        ("TOPIC", "READ"),
        ("GROUP", "READ"),
        ("CLUSTER", "IDEMPOTENT_WRITE"),
    }


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--list", "--add"), "exactly one action"),
        (("--add", "--topic", "t"), "--allow-principal, --deny-principal when trying to add"),
        (("--add", "--allow-principal", "User:a"), "at least one resource"),
        (("--add", "--allow-principal", "alice", "--topic", "t"), "'alice' is not Type:name"),
        (("--add", "--allow-host", "h", "--topic", "t"), "--allow-host needs --allow-principal"),
        (("--add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"), "'MATCH' is not valid"),
        (("--add", "--allow-principal", "User:a", "--cluster", "--operation", "Read"), "CLUSTER only supports operations"),
        (("--add", "--allow-principal", "User:a", "--consumer", "--topic", "t"), "you must specify a --group"),
        (("--list", "--operation", "Read"), "can't be used"),
        (("--remove", "--topic", "t", "--json"), "add --force"),
    ],
)
def test_conflicting_options_are_refused(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    ran = run("acls", *arguments)
    assert ran.code == 64
    assert reason in ran.err + ran.out


def test_without_an_authorizer_the_error_says_how_to_set_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def connect(**_: object) -> None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")

    monkeypatch.setattr(acls_command, "connect", connect)
    assert main.run(["acls", "--bootstrap-server", "h:1", "--list"]) == 1
    told = capsys.readouterr().out
    assert told.startswith("Error while executing ACL command: No Authorizer is configured on the broker\n")
    assert f"--property authorizer.class.name={OVERRIDES['authorizer.class.name']} " in told


# --- users -------------------------------------------------------------------------------------------------------------------


def test_a_refusal_names_the_missing_permission(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRAFTLAB_PASSWORD", "alice-secret")
    ran = run("acls", "--list", "--user", "alice")
    assert ran.code == 1
    assert ran.out == (
        "Error while executing ACL command: Request DescribeAcls by User:alice on the cluster needs DESCRIBE permission.\n"
    )
    run("acls", "--add", "--allow-principal", "User:alice", "--operation", "Describe", "--cluster")
    assert run("acls", "--list", "--user", "alice").code == 0


@pytest.mark.parametrize(
    "properties",
    [
        "username=alice\npassword=alice-secret\n",
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="alice-secret";\n',
    ],
)
def test_a_file_names_the_user(run: Run, tmp_path: Path, properties: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(properties)
    ran = run("topics", "--create", "--topic", "mine", "--partitions", "1", "--command-config", str(path))
    assert "Authorization failed." in ran.out
    run("acls", "--add", "--allow-principal", "User:alice", "--operation", "Create", "--topic", "mine")
    assert run("topics", "--create", "--topic", "mine", "--partitions", "1", "--command-config", str(path)).code == 0
    assert run("topics", "--delete", "--topic", "mine").code == 0


def test_a_wrong_password_is_one_line_with_the_next_step(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRAFTLAB_PASSWORD", "wrong")
    ran = run("log-dirs", "--describe", "--user", "alice")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "the password of user alice is wrong" in ran.err


def test_a_missing_password_is_reported_with_its_sources(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("KRAFTLAB_PASSWORD", raising=False)
    assert "set KRAFTLAB_PASSWORD" in run("topics", "--list", "--user", "alice").err
    path = tmp_path / "client.properties"
    path.write_text("username=alice\n")
    assert "add password=" in run("topics", "--list", "--command-config", str(path)).err
    path.write_text('sasl.jaas.config=Module required username="alice" password="alice-secret"\n')
    refused = run("topics", "--list", "--command-config", str(path)).err
    assert "sasl.jaas.config: the entry does not end; write ;" in refused
    assert "alice-secret" not in refused


def test_calls_at_the_controllers_own_door_are_judged_as_well(cluster: LocalCluster, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("KRAFTLAB_PASSWORD", "alice-secret")
    server = str(cluster.node(cluster.controller_ids[0]).grpc)
    code = main.run(["metadata-quorum", "--bootstrap-controller", server, "--user", "alice", "describe", "--status"])
    assert (code, capsys.readouterr().err) == (1, "Error: Cluster authorization failed.\n")


# --- SCRAM credentials of users ----------------------------------------------------------------------------------------------


def test_credentials_of_a_user_are_set_shown_and_removed(run: Run) -> None:
    ran = run("configs", "--alter", "--user", "bob", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=a,b=c]")
    assert ran == (0, "Completed updating config for user bob.\n", "")
    run("configs", "--alter", "--user", "bob", "--add-config", "SCRAM-SHA-512=[password=x]")
    shown = run("configs", "--describe", "--user", "bob").out
    assert shown == (
        "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n"
    )
    everybody = json.loads(run("configs", "--describe", "--entity-type", "users", "--json").out)
    assert [found["mechanism"] for found in everybody["scram_credentials"]] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert run("configs", "--alter", "--user", "bob", "--delete-config", "SCRAM-SHA-256,SCRAM-SHA-512").code == 0
    assert run("configs", "--describe", "--user", "bob") == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("--user", "bob", "--add-config", "SCRAM-SHA-256=[iterations=8192]"),
            "SCRAM-SHA-256 needs [iterations=NUMBER,password=",
        ),
        (("--user", "bob", "--add-config", "SCRAM-SHA-256=[iterations=10,password=x]"), "Too few iterations"),
        (("--user", "bob", "--add-config", "SCRAM-SHA-256=[iterations=999999999,password=x]"), "Too many iterations"),
        (("--user", "bob", "--add-config", "SCRAM-SHA-256=[iterations=9999999999,password=x]"), "needs [iterations=NUMBER"),
        (("--user", "bob", "--delete-config", "SCRAM-SHA-256"), "does not exist"),
        (("--user-defaults", "--add-config", "SCRAM-SHA-256=[password=x]"), "give --user NAME"),
        (
            ("--user", "bob", "--add-config", "SCRAM-SHA-256=[password=x],producer_byte_rate=1"),
            "change producer_byte_rate with another",
        ),
    ],
)
def test_invalid_credentials_are_refused(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    ran = run("configs", "--alter", *arguments)
    assert ran.code == (1 if reason in ("Too few iterations", "Too many iterations", "does not exist") else 64)
    assert reason in ran.err


@pytest.mark.parametrize(("more", "expected"), [((), []), (("idempotent",), ["IDEMPOTENT_WRITE"])])
def test_idempotent_writes_need_their_option(more: tuple[str, ...], expected: list[str]) -> None:
    options = Options(topic=("t",), allow_principal=("User:a",), **dict.fromkeys(("cluster", "producer", *more), True))
    on_cluster = [said for pattern, said in rules(options).items() if pattern.resource_type.name == "CLUSTER"]
    assert [entry.operation.name for said in on_cluster for entry in said] == expected


def test_repeated_options_make_one_rule() -> None:
    twice = Options(topic=("t", "t"), allow_principal=("User:a", "User:a"), operation=(Operation.READ, Operation.READ))
    assert [len(said) for said in rules(twice).values()] == [1]


def test_numbers_that_only_newer_nodes_know_are_shown_as_they_are() -> None:
    acl = pb.AclDescription(principal="User:a", host="*", operation=99, permission_type=3)
    resource = pb.DescribeAclsResource(resource_type=9, resource_name="x", pattern_type=3, acls=[acl])
    ((pattern, (entry,)),) = described([resource]).items()
    assert listing({pattern: [entry]}, ()) == [
        "Current ACLs for resource `ResourcePattern(resourceType=9, name=x, patternType=LITERAL)`:",
        "\t(principal=User:a, host=*, operation=99, permissionType=ALLOW)",
        "",
    ]
    assert document(pattern, entry)["operation"] == "99"
