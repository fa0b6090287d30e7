"""`pytest tests/transcripts --rewrite` writes what the commands say now into the files, to be reviewed as text."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite the golden transcripts with what they say now")


@pytest.fixture
def is_rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite", default=False))
