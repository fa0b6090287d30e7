"""Commands that need no cluster, and `up`, which is one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlab.cli import main
from kraftlab.cli.lab import up
from kraftlab.cli.output import BadInput
from kraftlab.cli.partitions.segments import chunks, find_partitions, import_partition
from kraftlab.cli.start_page import page
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.lab import node

pytestmark = pytest.mark.cluster

CAPTURE = Path(__file__).parents[2] / "examples" / "capture"


def test_storage_formats_shows_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=controller\nnode.id=3000\ncontroller.quorum.voters=3000@127.0.0.1:19093\n"
        f"listeners=CONTROLLER://127.0.0.1:19093,GRPC://127.0.0.1:19094\nmetadata.log.dir={tmp_path}/metadata\n"
    )
    assert main.run(["storage", "random-uuid"]) == 0
    cluster_id = capsys.readouterr().out.strip()
    assert len(cluster_id) == 22
    assert main.run(["storage", "info", "-c", str(config)]) == 1
    assert f"Found problem:\n  {tmp_path}/metadata does not exist\n" in capsys.readouterr().out
    assert main.run(["storage", "format", "-t", cluster_id, "-c", str(config)]) == 0
    assert capsys.readouterr().out == f"Formatting metadata directory {tmp_path}/metadata with metadata.version 4.3-IV0.\n"
    assert main.run(["storage", "format", "-t", cluster_id, "-c", str(config)]) == 1
    assert "is already formatted. Use --ignore-formatted" in capsys.readouterr().err
    assert main.run(["storage", "info", "-c", str(config)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Found log directory:\n  {tmp_path}/metadata\n\nFound metadata: {{cluster.id={cluster_id}, ")


@pytest.mark.parametrize("arguments", [[], ["--config"], ["--bogus", "--config", "x"]])
def test_a_node_without_its_config_ends_as_any_other_wrong_command(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        node.main(arguments)
    assert ended.value.code == 64
    said = capsys.readouterr().err
    assert said.startswith("Error: ")
    assert said.endswith("See: kraftlab node --help\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["completion", shell]) == 0
    assert "_KRAFTLAB_COMPLETE" in capsys.readouterr().out


def test_captured_files_are_found_in_order_and_cut_at_batches() -> None:
    found = find_partitions(CAPTURE / "segments")
    assert (found[0].topic, found[0].partition) == ("audit-log", 0)
    assert [path.name for path in next(entry for entry in found if entry.topic == "single").files] == [
        "00000000000000000000.log",
        "00000000000000005555.log",
    ]
    (file,) = found[0].files
    assert b"".join(content for content, _, _ in chunks(file)) == file.read_bytes()


def test_a_damaged_file_is_not_imported(tmp_path: Path) -> None:
    source = CAPTURE / "segments" / "audit-log-0" / "00000000000000000000.log"
    data = bytearray(source.read_bytes())
    data[500] ^= 1
    path = tmp_path / "damaged.log"
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"damaged\.log is damaged"):
        list(chunks(path))
    with pytest.raises(BadInput, match="holds no TOPIC-N directories"):
        find_partitions(tmp_path)
    with pytest.raises(BadInput, match="is not a directory"):
        find_partitions(path)
    with pytest.raises(BadInput, match="holds no partition of nothing; it holds audit-log, clicks, "):
        find_partitions(CAPTURE / "segments", ["clicks", "nothing"])


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "the cluster has no clicks-3; create it with kraftlab topics --create --topic clicks",
        ),
        (ErrorCode.INVALID_RECORD, "refused. A partition must be empty, .* start over: kraftlab topics --delete --topic clicks"),
    ],
)
def test_a_refused_import_names_the_next_step(code: ErrorCode, says: str) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise ApiError(code, "refused")

    (*_, source) = (entry for entry in find_partitions(CAPTURE / "segments", ["clicks"]) if entry.partition <= 3)
    client: Any = SimpleNamespace(produce=refuse)
    with pytest.raises(BadInput, match=says):
        import_partition(client, source)


def test_up_prints_endpoints_is_found_and_stops_cleanly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "kraftlab.cli.main", "up", "--data", str(tmp_path), "--json"]
    process = subprocess.Popen(
        [*command, "--controllers", "1", "--brokers", "1", "--log-dirs", "1"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        endpoints = json.loads(process.stdout.readline())
        assert [node["id"] for node in endpoints["nodes"]] == [3000, 0]
        assert main.run(["cluster", "cluster-id"]) == 0
        assert capsys.readouterr().out == f"Cluster ID: {endpoints['cluster_id']}\n"
        proposed = [re.split(r"\s{2,}", line.strip())[0].split()[1:] for line in page().splitlines() if "  kraftlab " in line]
        assert ["topics", "--describe"] in proposed
        assert [words for words in proposed if words[0] not in ("sim", "top") and main.run(words) != 0] == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    assert "stopped" in (tmp_path / "logs" / "controller-3000.log").read_text().splitlines()[-1]


@pytest.mark.parametrize("as_json", [False, True])
def test_up_prints_a_table_or_json(as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = SimpleNamespace(node_id=0, name="broker-0", rack="rack-0", grpc="127.0.0.1:9093", kafka="127.0.0.1:9092", metrics=None)
    cluster: Any = SimpleNamespace(
        plan=SimpleNamespace(nodes=[node], brokers=[node], secure=False),
        pid=lambda node_id: 7,
        disk_faults=["broker-1 does not start: /x/d0 is not formatted"],
        in_doubt=lambda: ("t-0 has no leader",),
        directory=tmp_path,
        endpoints=lambda: {"nodes": [{"id": 0}]},
        bootstrap_servers="127.0.0.1:9093",
        kafka_bootstrap_servers="127.0.0.1:9092",
    )
    up.announce(cluster, 1.5, tmp_path / "control", "http://127.0.0.1:8090/", as_json)
    told = capsys.readouterr()
    assert told.err == ""
    if as_json:
        assert json.loads(told.out) == {
            "ready_seconds": 1.5,
            "nodes": [{"id": 0}],
            "disk_faults": cluster.disk_faults,
            "in_doubt": ["t-0 has no leader"],
            "control_socket": f"{tmp_path}/control",
            "console": "http://127.0.0.1:8090/",
        }
    else:
        assert told.out.startswith("Kafka clients: 127.0.0.1:9092\nadmin API (gRPC): 127.0.0.1:9093\n")
        assert "\nbroker-0  rack-0  127.0.0.1:9092  127.0.0.1:9093" in told.out
        assert "\nconsole: http://127.0.0.1:8090/\n" in told.out
        assert "try: kraftlab topics --list" in told.out
        assert "\nt-0 has no leader\n" in told.out
        assert "{" not in told.out


def test_up_refuses_bad_directories_and_properties(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert main.run(["up", "--data", str(tmp_path / "file")]) == 1
        assert "file is not a directory; choose another one" in capsys.readouterr().err
        assert main.run(["up", "--data", str(tmp_path), "--property", "nonsense"]) == 64
        assert "expected KEY=VALUE" in capsys.readouterr().err
        assert main.run(["up", "--data", str(tmp_path / "lab"), "--property", "non.sense=1"]) == 1
        assert "sets non.sense, an unknown key" in capsys.readouterr().err
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [("completion", "bash"), ("sim", "--seed", "3", "--json"), ("sim", "--seed", "3", "--trace")])
def test_a_full_output_is_reported_in_one_line(words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "kraftlab.cli.main", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.stderr == "Error: cannot write: No space left on device; make room there, or send the output elsewhere\n"
    assert done.returncode == 1


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "--create", "--topic", "t", "--partitions", "99999999999"),
        ("topics", "--create", "--topic", "t", "--replica-assignment", "99999999999:0"),
        ("leader-election", "--election-type", "preferred", "--topic", "t", "--partition", "99999999999"),
        ("cluster", "unregister", "--id", "99999999999"),
        ("features", "upgrade", "--feature", "kraft.version=99999999999"),
    ],
)
def test_a_number_out_of_range_is_reported_in_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*words, "--bootstrap-server", "127.0.0.1:9"]) == 64
    assert capsys.readouterr().err == "Error: 99999999999 is out of range for this field; give a number closer to 0\n"


@pytest.mark.parametrize("words", [("topics", "--create", "--topic"), ("reassign-partitions", "--rollback")])
def test_a_name_that_is_not_utf_8_is_reported_in_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*words, "caf\udce9", "--bootstrap-server", "127.0.0.1:9"]) == 64
    assert capsys.readouterr().err == "Error: 'caf\\udce9' is not UTF-8; give names and texts in UTF-8\n"


def test_ctrl_c_while_a_command_is_still_being_loaded_ends_it_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def loading(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "run", loading)
    monkeypatch.setattr(sys, "argv", ["kraftlab", "topics"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == main.INTERRUPTED


@pytest.mark.parametrize("option", ["--throttle", "--replica-alter-log-dirs-throttle"])
def test_a_negative_throttle_is_refused_before_anything_starts(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--bootstrap-server", "127.0.0.1:1", "--execute", "--reassignment-json-file", "plan.json", option, "-5")
    assert main.run(["reassign-partitions", *words]) == 64
    assert f"Invalid value for '{option}': -5 is not in the range x>=-1." in capsys.readouterr().err
