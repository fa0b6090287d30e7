"""Every file in this directory has the output that consensus has now."""

from itertools import zip_longest
from pathlib import Path

import pytest

from kraftlab.simulation.transcripts.language import COMMANDS, parse, replay

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path, is_rewrite: bool) -> None:
    written = path.read_text()
    told = replay(written, path.name)
    if is_rewrite and told != written:
        path.write_text(told)
    elif told != written:
        lines = list(zip_longest(written.splitlines(), told.splitlines(), fillvalue="(the end)"))
        number, (expected, found) = next((n, pair) for n, pair in enumerate(lines, 1) if pair[0] != pair[1])
        pytest.fail(
            f"{path.name}:{number} says\n    {expected}\nbut now it is\n    {found}\n"
            "If that is meant: pytest tests/simulation/transcripts --rewrite, and review the difference.",
            pytrace=False,
        )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_transcript_opens_with_a_comment(path: Path) -> None:
    assert path.read_text().startswith("# ")


def test_a_command_that_does_not_exist_names_file_and_line() -> None:
    with pytest.raises(ValueError, match=r"story\.txt:3: 'elect' is not a command"):
        replay("# A story\n\nelect 1\n----\n", "story.txt")


def test_a_rewritten_transcript_is_rewritten_to_itself() -> None:
    once = replay("# Elects.\nadd-nodes 3\ncampaign 1\nstabilize\n\nlog\n----\nold\n")
    assert replay(once) == once
    assert len(parse(once)) == 2


def test_commands_are_documented_and_used() -> None:
    documentation = (Path(__file__).parents[3] / "docs" / "transcripts.md").read_text()
    transcripts = "\n".join(path.read_text() for path in FILES)
    for name in COMMANDS:
        assert f"`{name}" in documentation, f"docs/transcripts.md does not know {name}"
        assert f"\n{name}" in transcripts or f"quiet {name}" in transcripts, f"nobody uses {name}"
