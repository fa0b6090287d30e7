"""The cluster of examples/deploy/compose.yaml: each node in a namespace of its own, with the variables of its service."""

from __future__ import annotations

import re
import shlex
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka import KafkaConsumer, KafkaProducer

from kraftlab.lab import namespaces
from tests.helpers.machines import Machine, Machines, obstacle
from tests.helpers.waiting import wait_until

HOME = Path(__file__).resolve().parents[2] / "examples" / "deploy"
PROBE = "curl -sS --fail --max-time 5 http://127.0.0.1:9404/readyz"
OF_IMAGE = dict(re.findall(r"(KAFKA_\w+)=(\S+)", (HOME / "Containerfile").read_text()))

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def start(machine: Machine, service: dict[str, Any]) -> None:
    """Start the node of a service, as the image does, at an address that clients of the test reach."""
    variables = {**OF_IMAGE, **service["environment"]}
    text = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    text = text.replace("${ADVERTISED_HOST:-localhost}", machine.address)
    machine.run(f"env {text} kraftlab node --environment < /dev/null > /run/node.log 2>&1 &")


def is_healthy(machine: Machine) -> bool:
    return machine.run(f"{PROBE} > /run/probe 2>&1 && echo healthy || true") == "healthy\n"


def write_and_read(network: str, found: list[bytes]) -> None:
    namespaces.enter(network)
    servers = [f"10.0.0.{number}:1909{number - 3}" for number in (4, 5, 6)]
    with KafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        producer.send("t", b"one").get(30)
    with KafkaConsumer("t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
        found.append(next(consumer).value)


def test_services_become_healthy_in_the_order_of_compose_and_clients_use_the_cluster(tmp_path: Path) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    services = {
        name: service
        for name, service in yaml.safe_load((HOME / "compose.yaml").read_text())["services"].items()
        if service["image"] == "kraftlab"
    }
    machines = Machines(list(services), tmp_path)
    try:
        hosts = "".join(f"{machines[name].address} {name}\n" for name in services)
        for name in services:
            machines[name].run(f"cat >> /etc/hosts <<'EOF'\n{hosts}EOF")
        for role in ("controller", "broker"):
            of_role = [name for name in services if name.startswith(role)]
            for name in of_role:
                start(machines[name], services[name])
            for name in of_role:
                wait_until(lambda name=name: is_healthy(machines[name]), f"{name} is healthy", 90)
        found: list[bytes] = []
        client = threading.Thread(target=write_and_read, args=(machines.admin.network, found), name="client")
        client.start()
        client.join(90)
        assert found == [b"one"]
    finally:
        machines.end()
