"""stompjs in headless Chromium: a page that runs the steps, and its server."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.support.chromium import chromium_or_skip, running_chromium
from tests.support.foreign import JS

HERE = Path(__file__).parent
STOMPJS = JS / "node_modules" / "@stomp" / "stompjs"
PAGES: Mapping[str, tuple[Path, str]] = {
    "/stompjs.html": (HERE / "stompjs.html", "text/html"),
    "/stompjs.mjs": (HERE / "stompjs.mjs", "text/javascript"),
    "/scenario.mjs": (HERE / "scenario.mjs", "text/javascript"),
    "/stomp.umd.js": (STOMPJS / "bundles" / "stomp.umd.js", "text/javascript"),
}
PATIENCE_S = 60


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = PAGES.get(self.path.partition("?")[0])
        self.send_response(404 if found is None else 200)
        body = b"" if found is None else found[0].read_bytes()
        self.send_header("Content-Type", "text/plain" if found is None else found[1])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Suppress the log."""


@contextmanager
def _serving() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def lines_of_chromium(
    transport: str, port: int, cut_port: int, tag: str, directory: Path, *, steps: str = ""
) -> tuple[int, str]:
    """Run the steps, all or those named, in a page: the exit code, and the lines of JSON."""
    path = chromium_or_skip()
    if not STOMPJS.is_dir():
        pytest.skip("STOMPJS IS NOT THERE (npm ci in tests/js): it was tested in no browser")
    version = json.loads((STOMPJS / "package.json").read_text(encoding="utf-8"))["version"]
    result = urlencode(
        {
            "transport": transport,
            "port": port,
            "cut": cut_port,
            "tag": tag,
            "version": version,
            "steps": steps,
        }
    )
    with _serving() as own, running_chromium(path, directory) as browser:
        home = f"http://127.0.0.1:{own}"
        with browser.page(f"{home}/nothing") as page:
            # The authority of the tests is in no store of the browser's.
            page.call("Security.enable")
            page.call("Security.setIgnoreCertificateErrors", ignore=True)
            page.call("Page.navigate", url=f"{home}/stompjs.html?{result}")
            page.until("typeof code === 'number'", PATIENCE_S)
            lines = page.js("lines.map((line) => JSON.stringify(line)).join('\\n')")
            return int(page.js("code")), lines
