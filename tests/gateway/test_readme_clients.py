"""README's existing clients, run as they stand there. `make interop` runs the block of Apache Kafka's tools."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from kraftlab.lab.local import LocalCluster

README = (Path(__file__).parents[2] / "README.md").read_text()
SECTION = README[README.index("## With existing Kafka clients") : README.index("## In Python")]
KAFKA_PYTHON, CONFLUENT = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)


CLUSTER = (1, 2, 1)


def play(program: str, cluster: LocalCluster) -> list[str]:
    """Run a block in a process of its own; return the lines that it prints."""
    port = cluster.plan.brokers[0].kafka_port
    text = program.replace("localhost:9092", f"localhost:{port}")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_kafka_python_produces_and_consumes_in_a_group(cluster: LocalCluster) -> None:
    assert play(KAFKA_PYTHON, cluster) == [f"{number} hello {number}" for number in range(10)]


def test_confluent_kafka_creates_and_describes_a_topic(cluster: LocalCluster) -> None:
    first, *partitions = play(CONFLUENT, cluster)
    assert first == "orders keeps its records for 60000 ms"
    assert sorted(re.sub(r"led by \d", "led by N", re.sub(r"\[.*\]", "[…]", line)) for line in partitions) == [
        f"partition {index} on […] led by N" for index in range(3)
    ]
