"""Java homes that only say a version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def fake_java() -> Callable[..., Path]:
    """(home, version, exit_code=0) → a Java home whose `java` prints that version, or its other arguments, one a line."""

    def make(home: Path, version: str, exit_code: int = 0) -> Path:
        executable = home / "bin" / "java"
        executable.parent.mkdir(parents=True)
        executable.write_text(
            "#!/bin/sh\n"
            f'if [ "$1" = -version ]; then echo \'openjdk version "{version}" 2025-04-15\' >&2; exit {exit_code}; fi\n'
            'for argument in "$@"; do echo "<$argument>"; done\n'
        )
        executable.chmod(0o755)
        (home / "lib").mkdir()
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
        return home

    return make
