"""The files of three machines in docs/security.md: nodes read them, and open their listeners with them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraftlab.certificates import folder
from kraftlab.config import properties
from kraftlab.config.models import build_any
from kraftlab.metadata.image import MetadataImage
from kraftlab.node.doors import Doors, few_files_warning
from kraftlab.wire.tls_network import TlsNetwork

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
FILES = re.findall(r"```properties\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize(
    ("text", "listener"), list(zip(FILES, ("CONTROLLER", "PEER"), strict=True)), ids=["controller", "broker"]
)
def test_a_node_starts_with_a_documented_file(text: str, listener: str, tmp_path: Path) -> None:
    nodes = ["controller-3001", "broker-1"]
    folder.throw_away(tmp_path, nodes, ["admin"], ["10.0.0.1"])
    config = build_any(properties.parse(text.replace("/etc/kraftlab", str(tmp_path)).encode(), "security.md"), "security.md")
    doors = Doors(config, MetadataImage)
    assert isinstance(doors.network(listener), TlsNetwork)
    assert config.security.of("GRPC").tls is not None
    sasl = doors.kafka_entrance().sasl
    assert (sasl is None) == (listener == "CONTROLLER")


def test_the_documented_rule_names_users_and_nodes() -> None:
    config = build_any(properties.parse(FILES[1].encode(), "security.md"), "security.md")
    tls = config.security.of("PEER").tls
    assert tls is not None
    assert tls.principal_mapping.name("CN=alice,OU=ops,O=Example") == "alice"
    node = config.security.nodes.name_of("User:" + tls.principal_mapping.name("CN=broker-1"))
    assert (node.role, node.node_id) == ("broker", 1)


def test_a_node_that_may_open_too_few_files_for_its_connections_says_so() -> None:
    values = properties.parse(FILES[1].encode(), "security.md")
    config = build_any(values, "security.md")
    assert "raise the limit to 4778 (ulimit -n)" in few_files_warning(config, 4777)
    assert few_files_warning(config, 4778) == few_files_warning(config, -1) == ""
    config = build_any(values | {"max.connections": "10000"}, "security.md")
    assert "take up to 12560 connections at once" in few_files_warning(config, 12_560)
