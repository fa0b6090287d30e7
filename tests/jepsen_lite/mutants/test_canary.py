"""A real node whose fsyncs do nothing, and a power loss: acknowledged writes are gone, and the harness finds it. Without the bug
the same loss does no harm.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from jepsen_lite.faults.capabilities import probe
from jepsen_lite.mutants import canary
from jepsen_lite.mutants.canary import EATMYDATA, POWER, STRACE, run_canary

SYNCS = "int fsync(int f) {return 0;} int fdatasync(int f) {return 0;} int syncfs(int f) {return 0;}"


@pytest.fixture(scope="module", autouse=True)
def power() -> None:
    """Skip without disks whose power can be cut."""
    (found,) = probe((POWER,))
    if not found.is_on:
        pytest.skip(f"{POWER}: {found.detail}")


def library_in(directory: Path) -> str:
    """Return the path of libeatmydata if it is installed, otherwise of a library that does the same for this test."""
    (found,) = probe((EATMYDATA,))
    if found.is_on:
        return found.detail
    if shutil.which("cc") is None:
        pytest.skip(f"{EATMYDATA}: {found.detail}, and there is no C compiler to make another")
    source, library = directory / "syncs.c", directory / "syncs.so"
    source.write_text(SYNCS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return str(library)


@pytest.mark.nightly
@pytest.mark.parametrize("means", [EATMYDATA, STRACE])
def test_the_canary_turns_the_harness_red(tmp_path: Path, means: str) -> None:
    (strace,) = probe((STRACE,))
    if means == STRACE and not strace.is_on:
        pytest.skip(f"{STRACE}: {strace.detail}")
    canary_run = run_canary(library_in(tmp_path) if means == EATMYDATA else "")
    reasons = {verdict.checker: verdict.reason for verdict in canary_run.wrong if verdict.kind == "safety"}
    assert "was acknowledged and is not in the log" in reasons["witness"]
    assert canary_run.acknowledged > 0


@pytest.mark.nightly
def test_a_node_that_syncs_keeps_its_data_in_a_power_loss() -> None:
    canary_run = run_canary("", does_nothing=False)
    assert canary_run.wrong == ()
    assert canary_run.acknowledged > 0


def test_means_are_named_or_what_they_lack() -> None:
    found = canary.means()
    assert not (found.why and found.library)
    assert found.why or found.library or probe((STRACE,))[0].is_on
