"""The pages of docs/reference are those that the code gives now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GENERATE = Path(__file__).parents[2] / "docs" / "reference" / "generate.py"


def test_the_reference_is_current() -> None:
    """In a process of its own: click keeps the help option of a command as it was first shown."""
    done = subprocess.run([sys.executable, GENERATE, "--check"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
