"""`kraftlab certificates`: what people see, exit codes, and documents for programs."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kraftlab.certificates import folder

from ...helpers.commands import Ran, run_command

Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `kraftlab certificates …` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_command(capsys, "certificates", *arguments)


def test_an_authority_is_created_and_issues_for_nodes_and_users(run: Run) -> None:
    created = run("create-ca", "--name", "Example CA")
    assert created.lines[0].startswith("Created certificates/ca.pem (CN=Example CA); it expires at 20")
    assert created.lines[1] == "Its key is certificates/ca.key; keep it secret, it is needed to issue and renew."
    node = run("issue", "--broker", 3, "--host", "kafka3.example.org", "--host", "10.0.0.3")
    assert node.lines[0].startswith(
        "Issued certificates/broker-3.pem (CN=broker-3) for DNS:kafka3.example.org, IP:10.0.0.3; it expires at 20"
    )
    assert run("issue", "--controller", 1).out.startswith(
        "Issued certificates/controller-1.pem (CN=controller-1) for DNS:localhost, IP:127.0.0.1, IP:::1"
    )
    assert run("issue", "--user", "alice", "--json").json["usages"] == ["client"]


def test_show_lists_names_and_ends_and_its_exit_code_warns(run: Run) -> None:
    run("create-ca")
    run("issue", "--broker", 3, "--host", "a.example.org", "--days", 20)
    shown = run("show", "certificates/broker-3.pem", "certificates/ca.pem")
    assert shown.code == 0
    assert [line for line in shown.lines if "expires" not in line] == [
        "certificates/broker-3.pem: CN=broker-3",
        "  issuer   CN=kraftlab CA",
        "  names    DNS:a.example.org",
        "  usage    server, client",
        "certificates/ca.pem: CN=kraftlab CA",
        "  issuer   CN=kraftlab CA",
        "  usage    authority",
    ]
    assert [line.split("(")[1] for line in shown.lines if "expires" in line] == ["in 19 days)", "in 3649 days)"]
    assert run("show", "certificates/broker-3.pem", "--within", 19).code == 0
    assert run("show", "certificates/broker-3.pem", "--within", 20).code == 1
    (document,) = run("show", "certificates/broker-3.pem", "--json").json["certificates"]
    assert (document["names"], document["days_left"], document["is_valid_now"]) == (["DNS:a.example.org"], 19, True)


def test_renew_replaces_the_file(run: Run) -> None:
    run("create-ca")
    run("issue", "--broker", 3, "--days", 20)
    renewed = run("renew", "certificates/broker-3.pem", "certificates/ca.pem", "--days", 500, "--json")
    assert renewed.code == 0
    assert [(each["subject"], each["days_left"]) for each in renewed.json["certificates"]] == [
        ("CN=broker-3", 499),
        ("CN=kraftlab CA", 499),
    ]


def test_passwords_come_from_a_file_or_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("create-ca")
    Path("password").write_text("secret\nnot this line\n")
    assert run("issue", "--user", "alice", "--pkcs12", "--password-file", "password").code == 0
    assert folder.read_identity(Path("certificates/alice.p12"), "secret").key_fits
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"other\r\n")))
    assert run("issue", "--user", "bob", "--password-file", "-").code == 0
    assert folder.read_identity(Path("certificates/bob.pem"), "other").key_fits
    refused = run("show", "certificates/alice.p12")
    assert refused.code == 1
    assert refused.err.startswith("Error: certificates/alice.p12 cannot be opened without a password; give the store's password")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["issue"], "give one of --broker, --controller and --user"),
        (["issue", "--broker", 1, "--user", "alice"], "give one of --broker, --controller and --user"),
        (["issue", "--user", "alice", "--host", "a"], "--host is for nodes"),
        (["issue", "--user", "alice", "--pkcs12"], "--pkcs12 needs --password-file FILE"),
        (["issue", "--user", "broker-1"], "broker-1 is the name of a node; use --broker 1"),
        (["issue", "--user", "alice", "--password-file", "empty"], "there is no password in the first line of empty"),
        (["issue", "--user", "alice", "--password-file", "latin"], "the password in latin is not UTF-8"),
        (["show"], "Missing argument"),
    ],
)
def test_a_wrong_command_line_does_nothing(run: Run, arguments: list[object], text: str) -> None:
    Path("empty").write_text("\nsecond line")
    Path("latin").write_bytes(b"p\xe4ss")
    run("create-ca")
    before = sorted(Path("certificates").iterdir())
    refused = run(*arguments)
    assert refused.code == 64
    assert text in refused.err
    assert sorted(Path("certificates").iterdir()) == before


def test_what_cannot_be_done_ends_with_the_next_step(run: Run) -> None:
    missing = run("issue", "--user", "alice")
    assert (missing.code, missing.err) == (
        1,
        "Error: there is no certificates/ca.key; create an authority: kraftlab certificates create-ca --directory certificates, "
        "or give the --directory of one\n",
    )
    run("create-ca")
    assert run("create-ca").err == (
        "Error: certificates/ca.key exists; choose another --directory, or add --force to replace it\n"
    )
    assert run("show", "nothing.pem").err == (
        "Error: cannot read nothing.pem: No such file or directory; check the path and its permissions\n"
    )
    Path("text").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert run("show", "text", "--json").json["error"]["message"].startswith("text has a certificate that cannot be read: ")


def test_no_other_command_pays_for_the_library() -> None:
    code = "import sys; from kraftlab.cli import main; main.run(['topics', '--help']); main.run(['certificates', '--help'])\n"
    code += "sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0
