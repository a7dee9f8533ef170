"""A real browser: pages of strangers reach nothing of a running service, and the page of a lesson asks for nothing.

Long tests, which want Chromium: on Debian `apt install chromium`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Final

import pytest

from service.analysis.lesson.file import read, shipped
from service.analysis.lesson.page import lesson_page
from service.analysis.recording.reader import open_recording
from service.messages.telemetry import TelemetryFrame
from tests.service.conftest import Service

FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LONGEST_S: Final = 120.0
STRANGE: Final = "http://127.0.0.1:9/picture.png"
REBOUND: Final = "evil.example"
ATTEMPTS: Final = ("cors", "no-cors", "post", "put", "image", "script", "form", "events", "beacon", "socket")
PAGE: Final = """<!doctype html><meta charset="utf-8">
<body><form method="post" target="frame"><input name="text"></form>
<iframe name="frame"></iframe><script>
const at = SERVICE, json = JSON.stringify({prompt: "from a page", max_tokens: 1}), seen = {};
const loaded = (kind, url) => new Promise((done, failed) => {
  const each = document.createElement(kind);
  each.onload = done; each.onerror = failed; each.src = url; document.body.append(each);
});
const attempts = {
  "cors": () => fetch(at + "/batching?cors").then(answer => answer.text()),
  "no-cors": () => fetch(at + "/batching?no-cors", {mode: "no-cors"}),
  "post": () => fetch(at + "/v1/completions?post", {method: "POST", mode: "no-cors", body: json}),
  "put": () => fetch(at + "/batching?put", {method: "PUT", body: JSON.stringify({max_batch_size: 3})}),
  "image": () => loaded("img", at + "/?text=image"),
  "script": () => loaded("script", at + "/?text=script"),
  "form": async () => { const form = document.forms[0]; form.action = at + "/?form"; form.submit(); },
  "events": () => new Promise((done, failed) => {
    const events = new EventSource(at + "/telemetry?events"); events.onmessage = done; events.onerror = failed;
  }),
  "beacon": async () => navigator.sendBeacon(at + "/v1/completions?beacon", json),
  "socket": () => new Promise((done, failed) => {
    const socket = new WebSocket(at.replace("http", "ws") + "/?socket"); socket.onopen = done; socket.onerror = failed;
  }),
};
(async () => {
  for (const [name, attempt] of Object.entries(attempts))
    seen[name] = await attempt().then(answer => typeof answer === "string" ? answer : "sent", () => "refused");
  await fetch("/seen", {method: "POST", body: JSON.stringify(seen)});
})();
</script>"""

pytestmark = pytest.mark.long


class Browser:
    """Chromium with a profile of its own."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("chromium")
        assert program is not None, "these tests want Chromium: apt install chromium"
        self._folder, self._command = folder, [program, *FLAGS, f"--user-data-dir={folder / 'profile'}"]

    def open(self, url: str, *flags: str) -> str:
        """What stands in the page in the end."""
        command = [*self._command, *flags, "--virtual-time-budget=10000", "--dump-dom", url]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    @contextmanager
    def visit(self, url: str) -> Iterator[None]:
        """Keep the page open meanwhile."""
        with subprocess.Popen([*self._command, url], stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.terminate()

    def requested(self, page: Path) -> set[str]:
        """The addresses of all that a page asks for; what the browser asks for by itself has no origin."""
        log = self._folder / "net.json"
        self.open(page.as_uri(), f"--log-net-log={log}")
        text = log.read_text()
        events = json.loads(text if text.rstrip().endswith("}") else text.rstrip().rstrip(",") + "]}")["events"]
        asked = [each["params"] for each in events if {"url", "initiator"} <= each.get("params", {}).keys()]
        return {each["url"] for each in asked if each["initiator"] != "not an origin"}


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path)


class _Site(BaseHTTPRequestHandler):
    """Serves the page, and answers whatever is asked besides, with its address kept; takes what the page has seen."""

    asked: list[str]
    page: bytes
    seen: Queue[dict[str, str]]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/seen":
            self.seen.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        self.wfile.write(self.page)

    do_POST = do_PUT = do_OPTIONS = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def site(page: str = "") -> Iterator[tuple[str, list[str], Queue[dict[str, str]]]]:
    """A site of a stranger: its address, the addresses that are asked for there, and what the page has seen."""
    asked, seen = list[str](), Queue[dict[str, str]]()
    handler = type("Site", (_Site,), {"asked": asked, "page": page.encode(), "seen": seen})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked, seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def tried(browser: Browser, service_url: str) -> dict[str, str]:
    """What came of each of the attempts of a stranger's page."""
    with site(PAGE.replace("SERVICE", json.dumps(service_url))) as (url, _, seen), browser.visit(url):
        outcomes = seen.get(timeout=LONGEST_S)
    assert set(outcomes) == set(ATTEMPTS)
    return outcomes


def state(service: Service) -> tuple[int, int]:
    """How many requests its replicas took, and the version of its settings."""
    with service.telemetry() as telemetry:
        frame: TelemetryFrame = telemetry.read_until(lambda frame: bool(frame.replicas))
    return sum(each.ledger.received for each in frame.replicas), frame.in_force.version


@pytest.mark.promise("T27")
def test_that_no_page_of_a_stranger_reaches_the_service(browser: Browser, service: Service) -> None:
    with site() as (open_url, asked, _):
        tried(browser, open_url)
    reached = [path for path in asked if "favicon" not in path]
    assert len(reached) >= len(ATTEMPTS) - 1, f"a server without doors is reached by nearly all: {reached}"

    before = state(service)
    seen = tried(browser, service.url)
    assert {seen[name] for name in ("cors", "put", "image", "script", "events", "socket")} == {"refused"}
    assert state(service) == before


@pytest.mark.promise("T27")
def test_that_neither_a_visit_nor_a_name_that_was_rebound_is_served(browser: Browser, service: Service) -> None:
    port = service.url.rpartition(":")[2]
    assert "browser_refused" in browser.open(f"{service.url}/batching")
    rebound = browser.open(f"http://{REBOUND}:{port}/batching", f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1")
    assert "host_refused" in rebound


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in shipped().values()])
def test_that_the_page_of_a_lesson_asks_for_nothing(browser: Browser, tmp_path: Path, path: Path) -> None:
    lesson = read(path)
    if not lesson.recording:  # a quiz has none, and so no page
        return
    page = tmp_path / "lesson.html"
    page.write_text(lesson_page(lesson, open_recording(path.parent / lesson.recording)))
    shown = browser.open(page.as_uri(), f"--screenshot={tmp_path / 'page.png'}", "--window-size=1280,900")
    assert lesson.title in shown
    assert "between tokens</button>" in shown, "its program has run"
    assert (tmp_path / "page.png").stat().st_size > 20_000
    assert {url for url in browser.requested(page) if not url.startswith(("file:", "data:", "blob:"))} == set()

    without_policy = re.sub("<meta http-equiv=[^>]*>", "", page.read_text())
    page.write_text(without_policy.replace("</body>", f"<img src='{STRANGE}'></body>"))
    assert STRANGE in browser.requested(page), "it would be seen"
