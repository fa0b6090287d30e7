"""A browser for tests of the console. Every message on its console, error of a page and failed request fails the test."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

from kraftlab.cli.web.child import pages_of
from kraftlab.common.pages import assets_of, shared_assets
from kraftlab.lab import LocalCluster
from kraftlab.lab.faults.breaker import Breaker
from kraftlab.lab.faults.server import ControlServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request, Route

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(__file__).with_name("axe.min.js")
PATIENCE_MS = 20_000
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
ALONE = "https://console.test/"
"""Address of pages without a server."""
FRAME = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Alone</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css"><link rel="stylesheet" href="console.css">
<script type="module" src="alone.js"></script></head>
<body><main><h1>Alone</h1></main></body></html>"""
TYPES = {".css": "text/css", ".js": "text/javascript"}


class BrowserPages:
    """The pages of one test: call it to open an empty one. `close` fails if the browser complained."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._complaints: list[str] = []
        self._expected: list[re.Pattern[str]] = []

    def __call__(
        self,
        *,
        color_scheme: Literal["light", "dark"] = "light",
        width: int = 1300,
        height: int = 900,
        reduced_motion: Literal["reduce", "no-preference"] = "no-preference",
    ) -> Page:
        """Return a new page with storage and cookies of its own."""
        context = self._browser.new_context(
            color_scheme=color_scheme, viewport={"width": width, "height": height}, reduced_motion=reduced_motion
        )
        context.set_default_timeout(PATIENCE_MS)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: self._complaints.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: self._complaints.append(f"page error: {error}"))
        page.on("requestfailed", self._request_failed)
        return page

    def _request_failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the page itself left, or ended its stream
            self._complaints.append(f"failed request: {request.method} {request.url}: {request.failure}")

    def expect_console(self, pattern: str) -> None:
        """Expect complaints that contain a match of the pattern, one or more."""
        self._expected.append(re.compile(pattern))

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        unexpected = [text for text in self._complaints if not any(each.search(text) for each in self._expected)]
        missing = [each.pattern for each in self._expected if not any(map(each.search, self._complaints))]
        assert not unexpected, "\n".join(["the browser complained:", *unexpected])
        assert not missing, "\n".join(["the browser did not complain of:", *missing])


class Pages(NamedTuple):
    """A cluster with a console. `url` ends with a slash."""

    cluster: LocalCluster
    url: str


@pytest.fixture(scope="module")
def pages(request: pytest.FixtureRequest, starts_clusters: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """A cluster of the module's `CLUSTER = (controllers, brokers, log directories)` that takes faults, and its console. Its
    nodes have the module's `PROPERTIES`, in which DIRECTORY is the cluster's.
    """
    shape, directory = getattr(request.module, "CLUSTER", (3, 3, 2)), tmp_path_factory.mktemp("lab")
    given: dict[str, str] = getattr(request.module, "PROPERTIES", {})
    overrides = {name: value.replace("DIRECTORY", str(directory)) for name, value in given.items()}
    with LocalCluster(directory, *shape, allow_chaos=True, overrides=overrides) as cluster:
        control = ControlServer(cluster.directory, Breaker(cluster, lambda line: None))
        try:
            with pages_of(cluster.directory, 0, allow_chaos=True) as url:
                yield Pages(cluster, url)
        finally:
            control.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium of this machine, driven from the test's own thread. It ends with the module: meanwhile `asyncio.run` refuses to
    work in this thread.
    """
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; run: pip install -e '.[tests]'")
    if CHROMIUM is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the path")
    api.expect.set_options(timeout=PATIENCE_MS)
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def browser_page(browser: Browser) -> Iterator[BrowserPages]:
    """Open pages: `browser_page(color_scheme="dark", width=360)`. The test fails at its end if the browser complained."""
    pages = BrowserPages(browser)
    yield pages
    pages.close()


def open_alone(page: Page, script: str, files: Mapping[str, str] = {}) -> None:
    """Open a page that has the console's assets, its policy and this module, but no server."""
    served = {name: data.decode() for name, data in {**shared_assets(), **assets_of("kraftlab.console")}.items()}
    served |= {"alone.js": script, **files}

    def answer(route: Route) -> None:
        name = route.request.url.removeprefix(ALONE)
        if name == "":
            route.fulfill(body=FRAME, content_type="text/html", headers={"content-security-policy": POLICY})
        elif name in served:
            route.fulfill(body=served[name], content_type=TYPES[Path(name).suffix])
        else:
            route.abort("connectionrefused")

    page.route(f"{ALONE}**", answer)
    page.goto(ALONE)


def assert_accessible(page: Page) -> None:
    """Fail if the page is wider than its window, or with the rules of axe-core that the page breaks and the elements that do."""
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), f"{page.url} is too wide"
    page.evaluate(AXE.read_text())
    found: dict[str, Any] = page.evaluate("() => axe.run()")
    broken = {rule["id"]: [rule["help"], *(node["html"] for node in rule["nodes"])] for rule in found["violations"]}
    assert broken == {}, json.dumps(broken, indent=1)


def open_accessible(browser_page: BrowserPages, url: str, color_scheme: Literal["light", "dark"], text: str) -> Page:
    """Open a page on a phone, wait for the text, and check it there and on a desktop. Return the page of the desktop."""
    from playwright.sync_api import expect

    page = browser_page(color_scheme=color_scheme, width=360)
    page.goto(url)
    expect(page.get_by_text(text).first).to_be_visible()
    assert_accessible(page)
    page.set_viewport_size({"width": 1300, "height": 900})
    assert_accessible(page)
    return page
