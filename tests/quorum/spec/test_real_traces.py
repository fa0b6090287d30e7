"""The specification explains what real processes do, also those that are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.lab import LocalCluster
from kraftlab.quorum.spec import reading, tlc, traces

pytestmark = [pytest.mark.nightly, pytest.mark.cluster]


def test_the_traces_of_a_cluster_with_a_killed_controller_are_accepted(tmp_path: Path, starts_clusters: None) -> None:
    try:
        tlc.jar()
    except tlc.TlcMissing as error:
        pytest.skip(str(error))
    overrides = {"kraftlab.trace.file": str(tmp_path / "trace-{node}.ndjson")}
    with LocalCluster(tmp_path / "cluster", 3, 1, 1, overrides=overrides) as cluster, cluster.admin() as admin:
        for round in range(3):
            admin.create_topics([pb.CreatableTopic(name=f"topic-{round}", num_partitions=3, replication_factor=1)])
            if round < 2:
                cluster.kill_node(3000 + round)
                cluster.start_node(3000 + round)
    files = sorted(tmp_path.glob("trace-*.ndjson"))
    assert len(files) == 4
    lines = reading.read(files)
    assert sum(line["event"] == "boot" for line in lines) == 6
    (verdict,) = traces.check([lines])
    assert verdict.accepted, verdict
