"""`pytest tests/simulation/transcripts --rewrite` writes the current output of the commands into the files, for a review."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite the golden transcripts with what they say now")


@pytest.fixture
def is_rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite", default=False))
