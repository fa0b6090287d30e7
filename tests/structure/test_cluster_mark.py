"""Only tests with the mark `cluster` start clusters: others run beside them."""

from pathlib import Path

import pytest

from kraftlab.lab import ClusterError, LocalCluster


def test_a_test_without_the_mark_starts_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="KRAFTLAB_PORTS is \"not for tests without the marker 'cluster'\", expected"):
        LocalCluster(tmp_path, 1, 1, 1)
