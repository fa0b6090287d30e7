"""docs/deploy.md, word by word, on three machines in namespaces. Each test is a section, and leaves a cluster that is well."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from kraftlab.config import properties
from kraftlab.config.models import build_any
from kraftlab.lab import namespaces
from tests.helpers.machines import Machine, Machines, obstacle, sections
from tests.helpers.waiting import wait_until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deploy.md"
NAMES = ["kraft-1", "kraft-2", "kraft-3"]
TOPIC = "orders"


def here_documents() -> dict[str, str]:
    """Return the files that the page writes, by name, for the second machine."""
    found = re.findall(r"^cat > \S*?([\w@.]+) <<'?EOF'?\n(.*?)^EOF$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return {name: text.replace("$N", "2").replace(r"\$", "$") for name, text in found}


@pytest.mark.parametrize(("role", "node_id"), [("controller", 3002), ("broker", 2)])
def test_a_node_reads_its_documented_file(role: str, node_id: int) -> None:
    name = f"{role}.properties"
    config = build_any(properties.parse(here_documents()[name].encode(), name), name)
    assert (config.process_roles, config.node_id) == ((role,), node_id)
    assert all(config.security.of(listener).tls is not None for listener in config.listeners)


def test_each_block_names_its_place() -> None:
    blocks = [block for found in sections(PAGE).values() for block in found]
    assert len(blocks) == PAGE.read_text().count("```sh\n") > 20
    places = {place for place, _ in blocks}
    assert places == {"admin", "each machine", *NAMES, "kraft-2, kraft-3"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "kraftlab@.service"
    unit.write_text(here_documents()[unit.name].replace("/opt/kraftlab/bin/kraftlab", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=30, check=False)
    assert "kraftlab@" not in done.stderr, done.stderr


@pytest.fixture(scope="module")
def machines(starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """The machines after every section up to Check."""
    if reason := obstacle():
        pytest.skip(reason)
    made = Machines(NAMES, tmp_path_factory.mktemp("machines"), PAGE)
    try:
        for section in ("Install", "Certificates", "Configuration", "Format", "First start", "Check"):
            made.follow(section)
        yield made
    finally:
        made.end()


def client_options(machines: Machines) -> dict[str, Any]:
    return {
        "bootstrap_servers": [f"10.0.0.{n}:9092" for n in (1, 2, 3)],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
        "ssl_cafile": str(machines.admin.home / "pki" / "ca.pem"),
    }


class Writer:
    """Writes numbered records with acks=all from admin's network, until it is closed; `acknowledged` grows."""

    numbers = iter(range(10**9))

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self.acknowledged: list[int] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        self.goes_on()
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        self._thread.join(60)

    def goes_on(self) -> None:
        """Wait until more records are acknowledged."""
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > before + 10, "records are acknowledged", 60)

    def _write(self) -> None:
        namespaces.enter(self._machines.admin.network)
        with KafkaProducer(**client_options(self._machines), acks="all") as producer:
            while not self._closing.is_set():
                number = next(self.numbers)
                try:
                    producer.send(TOPIC, str(number).encode()).get(60)
                except KafkaError:
                    continue
                self.acknowledged.append(number)


def records(machines: Machines) -> list[int]:
    """Return the numbers in the topic."""
    found: list[int] = []

    def read() -> None:
        namespaces.enter(machines.admin.network)
        with KafkaConsumer(
            TOPIC, **client_options(machines), group_id=None, auto_offset_reset="earliest", consumer_timeout_ms=5000
        ) as consumer:
            found.extend(int(record.value) for record in consumer if record.value.isdigit())

    reader = threading.Thread(target=read, name="reader")
    reader.start()
    reader.join(120)
    return found


@pytest.fixture
def writer(machines: Machines) -> Iterator[Writer]:
    """A producer that runs during the test. Afterwards every record that was acknowledged is there."""
    with Writer(machines) as running:
        yield running
    assert set(running.acknowledged) - set(records(machines)) == set()


def quorum(machines: Machines) -> Any:
    return json.loads(machines.admin.run("kraftlab metadata-quorum describe --status --json"))


def leader(machines: Machines) -> int:
    return int(quorum(machines)["leader_id"])


def voters(machines: Machines) -> dict[int, str]:
    """Return the directory id of each voter."""
    return {voter["replica_id"]: voter["directory_id"] for voter in quorum(machines)["voters"]}


@pytest.mark.nightly
def test_a_machine_that_is_cut_off_is_replaced_by_an_election(machines: Machines, writer: Writer) -> None:
    cut = leader(machines)
    name = f"kraft-{cut - 3000}"
    machines.cut(name)
    writer.goes_on()
    assert leader(machines) != cut
    machines.heal(name)
    machines.admin.run("kraftlab cluster health --wait 120")


@pytest.mark.nightly
def test_a_machine_stops_and_starts(machines: Machines, writer: Writer) -> None:
    machines.follow("Stop and start a machine")
    writer.goes_on()


@pytest.mark.nightly
def test_an_upgrade_restarts_each_node(machines: Machines, writer: Writer) -> None:
    before = nodes(machines)
    machines.follow("Upgrade")
    assert nodes(machines).isdisjoint(before) and len(nodes(machines)) == 6
    writer.goes_on()


def nodes(machines: Machines) -> set[tuple[str, str]]:
    """Return machine and process of each node."""
    return {(name, pid) for name in NAMES for pid in machines[name].run("pgrep -u kraftlab").split()}


@pytest.mark.nightly
def test_a_lost_machine_is_replaced(machines: Machines, writer: Writer) -> None:
    before = voters(machines)
    machines.lose("kraft-3")
    writer.goes_on()
    machines.make("kraft-3")
    machines.follow("Replace a lost machine", blocks=slice(0, 1))
    machines.follow("Install", only="kraft-3")
    machines.follow("Configuration", only="kraft-3")
    machines.follow("Replace a lost machine", blocks=slice(1, None))
    found = voters(machines)
    assert found.keys() == before.keys() == {3001, 3002, 3003}
    assert {voter for voter in found if found[voter] != before[voter]} == {3003}
    writer.goes_on()


@pytest.mark.nightly
def test_the_metadata_is_restored_from_a_backup(machines: Machines) -> None:
    with Writer(machines) as before:
        machines.follow("Backup")
    machines.admin.run("kraftlab topics --create --topic younger")
    machines.follow("Restore")
    with Writer(machines) as after:
        pass
    assert {*before.acknowledged, *after.acknowledged} - set(records(machines)) == set()
    assert machines.admin.run("kraftlab topics --list").split() == [TOPIC]
    for name in NAMES:
        wait_until(lambda name=name: is_set_aside("younger", machines[name]), f"{name} sets the younger topic aside", 60)


def is_set_aside(topic: str, machine: Machine) -> bool:
    return re.fullmatch(rf"\S+/{topic}-0\.\w+-stray\n", machine.run(f"ls -d /var/lib/kraftlab/d0/{topic}*")) is not None


@pytest.mark.nightly
def test_renewed_certificates_count_without_a_restart(machines: Machines) -> None:
    before = nodes(machines)
    machines.follow("Renew certificates")
    for number in (1, 2, 3):
        for node, port in ((f"controller-300{number}", 9405), (f"broker-{number}", 9404)):
            of_file = x509.load_pem_x509_certificate((machines.admin.home / "pki" / f"{node}.pem").read_bytes())
            wait_until(
                lambda found=of_file, at=(f"10.0.0.{number}", port): served(machines, at) == found, f"{node}'s renewed file"
            )
    assert nodes(machines) == before


def served(machines: Machines, at: tuple[str, int]) -> x509.Certificate | None:
    """Return the certificate of a listener."""
    found: list[x509.Certificate] = []

    def ask() -> None:
        namespaces.enter(machines.admin.network)
        found.append(x509.load_pem_x509_certificate(ssl.get_server_certificate(at, timeout=10).encode()))

    asking = threading.Thread(target=ask, name="asking")
    asking.start()
    asking.join(20)
    return found[0] if found else None
