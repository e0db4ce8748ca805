"""Headless Chromium, driven by the Chrome DevTools protocol over a pair of pipes.

It needs only the browser: no driver, no port, no package.
"""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Only something broken takes so long.
PATIENCE_S = 30
READ_BYTES = 1 << 20

# No name but this machine's can be looked up: a page that needs another host fails.
ALONE = "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # the browser loads only our own page, and may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
    f"--host-resolver-rules={ALONE}",
)


def chromium_or_skip() -> str:
    """The path of Chromium, or skip, and say so loudly."""
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.skip("CHROMIUM IS NOT THERE: the dashboard was tested in no browser")


class CallFailed(AssertionError):
    """Chromium answered a call with an error."""


class Chromium:
    """A running browser, and its messages."""

    def __init__(self, process: "subprocess.Popen[bytes]", reads: int, writes: int) -> None:
        self.process = process
        self.pages: dict[str, Page] = {}
        self._reads = reads
        self._writes = writes
        self._numbers = count(1)
        self._rest = b""

    def call(self, method: str, session: str | None = None, **params: object) -> dict[str, Any]:
        """Ask for something, and wait for the answer."""
        number = next(self._numbers)
        message: dict[str, object] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        while True:
            outcome = self._next()
            if outcome.get("id") == number:
                if "error" in outcome:
                    raise CallFailed(method, outcome["error"])
                result: dict[str, Any] = outcome["result"]
                return result

    def _next(self) -> dict[str, Any]:
        """Return the next message. Pass events to their page, too."""
        deadline = time.monotonic() + 2 * PATIENCE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], deadline - time.monotonic())
            data = os.read(self._reads, READ_BYTES) if ready else b""
            assert data, f"Chromium says nothing more; exit code {self.process.poll()}"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        record: dict[str, Any] = json.loads(line)
        page = self.pages.get(record.get("sessionId", ""))
        if page is not None and "method" in record:
            page.hear(record["method"], record["params"])
        return record

    @contextmanager
    def page(self, url: str, width: int = 1280, height: int = 900) -> Iterator["Page"]:
        """Load a page with empty storage, separate from that of other pages."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"])
        self.pages[page.session] = page
        try:
            page.open(url, width, height)
            yield page
        finally:
            del self.pages[page.session]
            self.call("Target.disposeBrowserContext", browserContextId=context)


class Page:
    """One page: its content, its console and its requests."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self.browser = browser
        self.session = session
        self.complaints: list[str] = []
        """Errors and warnings of the console."""
        self.refused: list[str] = []
        """Addresses of the management interface whose answers were errors."""
        self.requested: list[str] = []

    def call(self, method: str, **params: object) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def hear(self, method: str, params: dict[str, Any]) -> None:
        """Process an event of the protocol."""
        match method:
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(params["args"]))
            case "Log.entryAdded" if "/api/v1/" in params["entry"].get("url", ""):
                self.refused.append(params["entry"]["url"])
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(json.dumps(params["entry"]))
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])
            case "Network.webSocketCreated":
                self.requested.append(params["url"])

    def open(self, url: str, width: int, height: int) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.resize(width, height)
        self.call("Page.navigate", url=url)
        self.until(f"location.href !== 'about:blank' && {LOADED}")

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def prefer(self, scheme: str) -> None:
        """Set the preferred colour scheme: ``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def js(self, expression: str) -> Any:
        """Return the value of an expression in the page, or the result of a promise."""
        result = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, expression: str, patience_s: float = PATIENCE_S) -> Any:
        """Wait until an expression is true, and return it."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            try:
                result = self.call(
                    "Runtime.evaluate",
                    expression=WAIT % expression,
                    awaitPromise=True,
                    returnByValue=True,
                )
            except CallFailed:  # the page is replaced by another one
                time.sleep(0.02)
                continue
            value = result["result"].get("value")
            if value:
                return value
        raise AssertionError(f"never true: {expression}; {self.complaints}\n{self.text('main')}")

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        found: str = self.js(f"document.querySelector({json.dumps(selector)}).innerText")
        return found

    def go(self, view: str) -> None:
        """Choose a view by its link."""
        self.click(f'nav a[href="#{view}"]')
        self.until(f"!document.getElementById({json.dumps(view)}).hidden")

    def click(self, selector: str) -> None:
        """Click an element once it can be seen and clicked, as a mouse in its middle would."""
        self.click_on(f"document.querySelector({json.dumps(selector)})")

    def click_on(self, element: str) -> None:
        """Click the element that an expression returns, once it can be seen and clicked.

        It is found, checked and clicked in one step, because the page may change it between two.
        """
        self.until(f"({CLICK})({element})")

    def fill(self, selector: str, text: str) -> None:
        """Type text into a field in place of its present text, once the field can be seen.

        This is one step, because the page may give the focus to another field between two.
        """
        field = f"document.querySelector({json.dumps(selector)})"
        self.until(f"({FILL})({field}, {json.dumps(text)})")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key. ``code`` is its virtual key code, ``text`` what it types."""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, text=text, windowsVirtualKeyCode=code
            )


CLICK = """(element) => {
  if (!element?.checkVisibility() || element.disabled) return false;
  element.scrollIntoView({block: "center", behavior: "instant"});
  const {x, y, width, height} = element.getBoundingClientRect();
  if (!element.contains(document.elementFromPoint(x + width / 2, y + height / 2))) return false;
  element.focus();
  element.click();
  return true;
}"""
"""Clicks an element. It returns false if the element is hidden, off, or behind another."""
FILL = """(field, text) => {
  if (!field?.checkVisibility()) return false;
  field.focus();
  field.select();
  document.execCommand(text === "" ? "delete" : "insertText", false, text);
  return true;
}"""
LOADED = "document.readyState === 'complete'"
WAIT = """new Promise((resolve) => {
  const end = performance.now() + 1000;
  const look = () => {
    let value = null;
    try { value = (%s); } catch { value = null; }
    if (value) resolve(typeof value === "object" ? true : value);
    else if (performance.now() > end) resolve(null);
    else setTimeout(look, 20);
  };
  look();
})"""


@contextmanager
def running_chromium(path: str, directory: Path) -> Iterator[Chromium]:
    """Run a browser. ``directory`` is for its profile."""
    to_browser, from_us = os.pipe()
    from_browser, to_us = os.pipe()
    # It expects to read from 3 and to write to 4; out of the way of these, they can be moved there.
    reads, writes = (fcntl.fcntl(each, fcntl.F_DUPFD, 50) for each in (to_browser, to_us))
    move = f"import os, sys; os.dup2({reads}, 3); os.dup2({writes}, 4); "
    start = move + "os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", start, path, *OPTIONS, f"--user-data-dir={directory}"]
    with subprocess.Popen(
        command, pass_fds=(reads, writes), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        for each in (to_browser, to_us, reads, writes):
            os.close(each)
        browser = Chromium(process, from_browser, from_us)
        try:
            yield browser
            browser.call("Browser.close")
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            os.close(from_us)
            os.close(from_browser)
