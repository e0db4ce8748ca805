"""Insight in the dashboard: findings of the sidecar, for whom the broker lets receive them."""

import json
import time
from collections.abc import Callable

import pytest

from tests.support.chromium import Chromium, Page
from tests.support.dashboard import MARKUP, anonymous, live, log_in, shows, url
from tests.support.foreign import PATIENCE_S, PythonPeer

pytestmark = pytest.mark.foreign

FILLING = "/topic/insight/queue-filling"


def finding(minute: int, text: str) -> str:
    """Return a message as ``InsightSink`` publishes it."""
    who = {"rule": "queue-filling", "broker_id": "b", "minute": f"2026-03-09T12:0{minute}:00+00:00"}
    return json.dumps(who | {"destination": "/queue/orders", "subscription": "", "text": text})


def until_shown(page: Page, place: str, text: str, send: Callable[[], object]) -> None:
    """Send again and again until the view shows a text: it subscribes in its own time."""
    deadline = time.monotonic() + PATIENCE_S
    while text not in page.text(place):
        assert time.monotonic() < deadline, page.text(place)
        send()


def test_findings_are_listed_once_for_each_thing_the_newest_first(page: Page, port: int) -> None:
    page.go("insight")
    shows(page, "#insight", "No figures came yet")
    shows(page, "#insight-table", "No finding came")
    peer = anonymous(port)
    rates = json.dumps({"rule": "rates", "minute": "2026-03-09T12:00:00+00:00"})
    heard = "The last figures are of"
    until_shown(page, "#insight-result", heard, lambda: peer.send("/topic/insight/rates", rates))
    peer.send("/topic/insight/x", "no JSON")
    for minute, text in enumerate((f"{MARKUP} is full in 9 min", "is full in 8 min")):
        peer.send(FILLING, finding(minute, text))
    shows(page, "#insight-table", "is full in 8 min")
    assert page.js("document.querySelectorAll('#insight tbody tr').length") == 1
    peer.send(FILLING, finding(2, "other").replace("orders", "bills"))
    first = "document.querySelector('#insight tbody tr').innerText"
    page.until(f"{first}.includes('/queue/bills')")
    # Findings come while other views are shown, too.
    page.go("overview")
    peer.send(FILLING, finding(3, "is full now"))
    page.go("insight")
    page.until(f"{first}.includes('is full now')")
    link = page.js("document.querySelector('#insight tbody a').href")
    assert link.endswith("#queue?name=%2Fqueue%2Forders")
    peer.leave()


@pytest.mark.full
def test_the_broker_decides_who_sees_them(chromium: Chromium, guarded: int) -> None:
    anna = PythonPeer(guarded, "1.2", {"login": "anna", "passcode": "secret"})
    with chromium.page(f"{url(guarded)}#insight") as page:
        # bob may monitor, but not receive: the figures of all other views go on.
        log_in(page, "bob")
        shows(page, "#insight-result", "The broker refused /topic/insight/>: bob may not receive")
        live(page)
        # carl may receive, but not monitor.
        page.js("location.reload()")
        log_in(page, "carl")
        page.until("document.getElementById('insight').checkVisibility()")
        shows(page, "#insight-result", "No figures came yet")
        full = finding(1, "is full")
        until_shown(page, "#insight-table", "is full", lambda: anna.send(FILLING, full))
    anna.leave()
