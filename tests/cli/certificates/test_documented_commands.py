"""The commands of docs/security.md, section Certificates, in their order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ...helpers.commands import run_command

SECTION = (
    (Path(__file__).parents[3] / "docs" / "security.md").read_text().partition("\n## Certificates\n")[2].partition("\n## ")[0]
)
COMMANDS = re.findall(r"^    kraftlab (certificates .+)$", SECTION, re.MULTILINE)


def test_the_documented_commands_work_and_make_the_documented_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bob.password").write_text("secret\n")
    ran = {command: run_command(capsys, *shlex.split(command)) for command in COMMANDS}
    assert {command: each.err for command, each in ran.items() if each.code != 0} == {}
    assert len(ran) >= 8
    documented = re.findall(r"^\| `(pki/[\w.-]+)` \|", SECTION, re.MULTILINE)
    assert len(documented) == 4
    assert [path for path in documented if not Path(path).is_file()] == []
