"""The dashboard in headless Chromium, against a broker in a process of its own."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import argon2
import pytest

from tests.support.chromium import Chromium, Page
from tests.support.dashboard import (
    ASKING,
    MARKUP,
    OFTEN,
    VIEWS,
    anonymous,
    confirm,
    dead_letter,
    in_row,
    live,
    log_in,
    open_queue,
    press,
    shows,
    tick,
    url,
    waiting,
)
from tests.support.foreign import JS, PATIENCE_S, PythonPeer, running_broker

pytestmark = pytest.mark.foreign

LONG = "/topic/" + "W" * 300


def ask_about(page: Page, name: str) -> None:
    """Query the history of a message."""
    page.fill("#explain-id-form [name=id]", name)
    page.click("#explain-id-form button")


def ask_of(page: Page, destination: str, **who: str) -> None:
    """Query a destination, or why a ``session`` or ``user`` receives nothing there."""
    page.fill("#explain-place-form [name=destination]", destination)
    for by, name in who.items():
        page.js(f"document.querySelector('#explain-place-form [name=by]').value = {by!r}")
        page.fill("#explain-place-form [name=who]", name)
    page.click("#explain-place-form button")


def kinds(page: Page) -> list[str]:
    """Return the events in the timeline of an explanation."""
    found = page.js(
        "[...document.querySelectorAll('#explain-events .kind')].map((each) => each.textContent)"
    )
    return list(found)


def test_scripts_that_need_no_page_pass_in_node() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("NODE IS NOT THERE: the dashboard's modules were not tested alone")
    command = [node, "--test", str(JS / "dashboard.test.mjs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout


def test_loads_from_the_broker_alone_and_complains_of_nothing(page: Page, port: int) -> None:
    for view in VIEWS:
        page.go(view)
    page.js("new Promise((resolve) => setTimeout(resolve, 500))")  # for their answers
    assert not page.js("document.querySelector('nav a[href=\"#cluster\"]').checkVisibility()")
    assert page.refused == []
    assert set(page.requested) >= {url(port), url(port) + "static/stomp.umd.min.js"}
    here = (url(port), f"ws://127.0.0.1:{port}/ws")
    assert [each for each in page.requested if not each.startswith(here)] == []


def test_text_cannot_become_markup_and_scripts_only_come_as_files(page: Page) -> None:
    refused = page.js(
        "(() => { try { document.body.innerHTML = '<p>'; } catch (e) { return e.name; } })()"
    )
    assert refused == "TypeError"
    page.js("document.body.append(Object.assign(document.createElement('script'), {}))")
    assert page.js("fetch('http://127.0.0.1:1/').then(() => 'let through', (e) => e.name)")
    assert any("Content Security Policy" in each for each in page.complaints)
    page.complaints.clear()


def test_rates_rise_when_messages_are_sent(page: Page, port: int) -> None:
    first = "document.querySelector('#tiles strong').textContent"
    page.until(f"{first} === '0/s'")
    peer = anonymous(port)
    peer.subscribe("/topic/prices")
    for _ in range(200):
        peer.try_send("/topic/prices", "x")
    peer.settle()
    page.until(f"{first} !== '0/s'")
    shows(page, "#busiest", "/topic/prices")
    shows(page, "#heat-hover", "median")
    page.until(f"{first} === '0/s'")
    peer.leave()


@pytest.mark.full
def test_a_page_that_connects_late_lists_idle_objects_too(chromium: Chromium, port: int) -> None:
    """Lists of changes omit idle objects, which are in the stream's history."""
    anna = anonymous(port, login="anna", passcode="x")
    anna.subscribe("/topic/idle")
    anna.send("/topic/idle", "x")
    anna.send("/queue/full", "x")
    with chromium.page(url(port)) as early:
        live(early)
        early.go("destinations")
        shows(early, "#destinations-table", "/topic/idle")
    # By now these figures are old news.
    with chromium.page(url(port)) as page:
        live(page)
        page.go("connections")
        shows(page, "#connections-table", "anna")
        shows(page, "#connections-table", "(this page)")
        page.go("destinations")
        shows(page, "#destinations-table", "/topic/idle")
        page.go("queues")
        waiting(page, "/queue/full", "1")
        page.fill("#queues-filter", "nothing is called so")
        shows(page, "#queues-table", "No queue matches")
        assert page.complaints == []
    anna.leave()


@pytest.mark.full
def test_tells_why_a_connection_ended(page: Page, port: int) -> None:
    peer = anonymous(port, login="anna", passcode="x")
    peer.try_send("/topic/*", "x")
    assert peer.refused().headers["code"] == "wildcard-in-send"
    shows(page, "#endings", "protocol-error")
    page.go("events")
    shows(page, "#events-table", "protocol-error")
    page.fill("#events-filter", "anna")
    page.js("document.getElementById('events-kind').value = 'disconnect'")
    page.js("document.getElementById('events-kind').dispatchEvent(new Event('input'))")
    page.until("document.querySelectorAll('#events-table tbody tr').length === 1")
    page.go("connections")
    shows(page, "#ended-table", "protocol-error")


@pytest.mark.full
def test_the_feed_can_be_paused(page: Page, port: int) -> None:
    page.go("events")
    page.click("#events-pause")
    anonymous(port, login="late", passcode="x").leave()
    page.go("connections")
    shows(page, "#ended-table", "late")
    page.go("events")
    assert "late" not in page.text("#events-table")
    page.click("#events-pause")
    shows(page, "#events-table", "late")


@pytest.mark.full
def test_drops_are_shown_by_reason(page: Page, port: int) -> None:
    peer = anonymous(port)
    peer.send("/topic/nobody", "x")
    shows(page, "#drops", "no-subscriber")
    peer.leave()


def test_sent_message_is_received(page: Page) -> None:
    page.go("try")
    page.click("#subscribe-form button")
    shows(page, "#subscriptions", "/topic/hello")
    page.fill("#send-form [name=headers]", "colour:green")
    page.fill("#send-form [name=body]", "Grüße, 茶 <b>")
    page.click("#send-form button")
    shows(page, "#send-result", "subscribers: 1")
    shows(page, "#received", "Grüße, 茶 <b>")
    shows(page, "#wire", "colour:green")
    page.click("#subscriptions button")
    page.until("document.getElementById('subscriptions').childElementCount === 0")
    page.click("#send-form button")
    shows(page, "#send-result", "no subscribers")
    page.fill("#send-form [name=headers]", "colour")
    page.click("#send-form button")
    shows(page, "#send-result", "name:value")


@pytest.mark.full
def test_an_error_is_shown_and_the_next_try_works(page: Page) -> None:
    page.go("try")
    page.fill("#send-form [name=destination]", "/topic/*")
    page.click("#send-form button")
    shows(page, "#send-result", "wildcard-in-send")
    page.fill("#send-form [name=destination]", "/topic/x")
    page.click("#send-form button")
    shows(page, "#send-result", "The broker has accepted it")


@pytest.mark.full
def test_snippets_name_this_broker(page: Page, port: int) -> None:
    page.go("try")
    python = page.text("#snippet-python")
    compile(python, "snippet", "exec")
    assert f'Connection12([("127.0.0.1", {port})])' in python
    assert f'brokerURL: "ws://127.0.0.1:{port}/ws"' in page.text("#snippet-javascript")


def test_a_queue_is_browsed_and_purged(page: Page, port: int) -> None:
    peer = anonymous(port)
    for number in range(120):
        peer.send("/queue/full", f"body {number}")
    open_queue(page, "/queue/full")
    shows(page, "#queue .messages-count", "50 shown, 120 waiting")
    press(page, "queue", "Show more")
    shows(page, "#queue .messages-count", "100 shown")
    press(page, "queue", "Show more")
    shows(page, "#queue .messages", "body 119")
    assert page.js("document.querySelectorAll('#queue .messages li').length") == 120
    press(page, "queue", "Purge …")
    shows(page, "#confirm", "120")
    # The next question opens before the browser reports the end of this one.
    page.js(
        "(() => { document.getElementById('confirm-no').click();"
        " [...document.querySelectorAll('#queue button')]"
        ".find((each) => each.textContent === 'Purge …').click(); })()"
    )
    page.js("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))")
    confirm(page)
    shows(page, "#queue .result", "120 messages deleted")
    shows(page, "#queue .tile strong", "0")
    peer.subscribe("/queue/full")
    assert peer.is_quiet()
    peer.leave()


@pytest.mark.full
def test_scheduled_messages_are_listed_and_cancelled(page: Page, port: int) -> None:
    peer = anonymous(port)
    for name in ("/queue/soon", "/queue/later"):
        peer.send(name, "x", {"AMQ_SCHEDULED_DELAY": "3600000"})
    page.go("schedules")
    page.click("#schedules-again")  # the first look may have come before
    shows(page, "#schedules-table", "/queue/later")
    shows(page, "#schedules-count", "2")
    in_row(page, "schedules", "/queue/soon", "button")
    shows(page, "#confirm-text", "anonymous has scheduled for /queue/soon")
    confirm(page)
    shows(page, "#schedules-count", "1")
    page.click("#schedules-again")
    shows(page, "#schedules-count", "1")
    peer.leave()


@pytest.mark.full
def test_dead_letters_are_tried_again_one_by_one(page: Page, port: int) -> None:
    dead_letter(port, "/queue/jobs", "one", "two", trace="7")
    # Known by its id, it would pass for a duplicate of its first sending, and be lost.
    dead_letter(port, "/queue/jobs", "three", **{"x-dedup-id": "3"})
    dead_letter(port, "/queue/jobs", "four", "five")
    open_queue(page, "/queue/DLQ.jobs")
    shows(page, "#queue .messages", "x-death-reason: rejected")
    press(page, "queue", "Retry …")
    shows(page, "#queue .messages-result", "Select messages first")
    for body in ("one", "three"):
        tick(page, body)
    press(page, "queue", "Retry …")
    shows(page, "#confirm-choices", "2 to /queue/jobs")
    confirm(page)
    shows(page, "#queue .messages-result", "Retry: 2 messages.")
    tick(page, "four")
    press(page, "queue", "Drop …")
    shows(page, "#confirm", "Drop 1 message?")
    confirm(page)
    shows(page, "#queue .messages-result", "Drop: 1 message.")
    tick(page, "five")
    press(page, "queue", "Move …")
    confirm(page, "/queue/other")
    shows(page, "#queue .messages-result", "Move to /queue/other: 1 message.")
    shows(page, "#queue .messages", "two")
    assert page.js("document.querySelectorAll('#queue .messages li').length") == 1
    peer = anonymous(port)
    peer.subscribe("/queue/jobs")
    messages = [peer.get() for _ in range(2)]
    assert [each.body for each in messages] == ["one", "three"]
    assert [each.headers.get("trace") for each in messages] == ["7", None]
    assert not [name for each in messages for name in each.headers if "death" in name]
    assert "original-destination" not in messages[0].headers
    assert peer.is_quiet()
    peer.leave()


@pytest.mark.full
def test_dead_letters_go_only_where_one_has_agreed(page: Page, port: int) -> None:
    dead_letters = "/queue/deadletter"
    for name in ("/queue/x", "/queue/trap", "/topic/empty"):
        dead_letter(port, name, name, requeue="", **{"max-exceptions": "0"})
    peer = anonymous(port)
    peer.send(dead_letters, "", {"original-destination": "/queue/trap"})  # it may not say that
    open_queue(page, dead_letters)
    shows(page, "#queue .messages", "/topic/empty")
    press(page, "queue", "Select all shown")
    press(page, "queue", "Retry …")
    shows(page, "#confirm-choices", "1 to /queue/trap")
    shows(page, "#confirm-choices", "no known subscriber")
    ticked = page.js("[...document.querySelectorAll('#confirm input')].map((each) => each.checked)")
    assert ticked == [False, False, False, False]
    page.click("#confirm input")
    confirm(page)
    shows(page, "#queue .messages-result", "Retry: 1 message.")
    peer.subscribe(dead_letters)
    letters = [peer.get() for _ in range(3)]
    assert [each.body for each in letters] == ["/queue/trap", "/topic/empty", ""]
    origins = [each.headers.get("original-destination") for each in letters]
    assert origins == ["/queue/trap", "/topic/empty", None]
    peer.subscribe("/queue/x", id="2")
    assert peer.get().body == "/queue/x"
    assert peer.is_quiet()
    peer.leave()


@pytest.fixture
def strict(chromium: Chromium) -> Iterator[int]:
    """Yield the port of a broker that dead-letters a message after one redelivery."""
    with running_broker(*OFTEN, "--max-redeliveries", "1") as found:
        yield found


@pytest.mark.full
def test_fate_of_a_message_is_shown_with_the_deciding_rule(chromium: Chromium, strict: int) -> None:
    peer = anonymous(strict, login="anna", passcode="x")
    peer.subscribe("/queue/jobs", ack="client-individual")
    peer.send("/queue/jobs", "poison")
    messages = []
    for _ in range(2):
        messages.append(peer.get())
        peer.nack(messages[-1])
    peer.settle()
    name, again = (message.headers["message-id"] for message in messages)
    assert name == again
    deliveries = [message.headers["ack"] for message in messages]
    story = ["queued", "delivered", "rejected", "delivered", "rejected", "lost"]
    with chromium.page(url(strict)) as page:
        live(page)
        page.go("explain")
        assert not page.js("document.getElementById('explain-answer').checkVisibility()")
        ask_about(page, f" {name} ")
        shows(
            page,
            "#explain-summary",
            "It was delivered 2 times, and died: delivery-limit by max_redeliveries = 1.",
        )
        assert kinds(page) == story
        assert page.text("#explain-events .rule") == "decided by max_redeliveries = 1"
        assert "anna · 127.0.0.1:" in page.text("#explain-events")
        shows(page, "#explain-horizon", "is remembered, back to")
        assert page.js("document.querySelector('#explain-summary .bad') !== null")
        # Its second delivery is a link, which leads to the same message.
        page.click(f'#explain-events a[href="#explain?id={deliveries[1]}"]')
        shows(page, "#explain-title", f"Message {deliveries[1]}")
        asked = page.js("document.querySelector('#explain-id-form [name=id]').value")
        assert asked == deliveries[1]
        assert kinds(page) == story
        page.js("history.back()")
        shows(page, "#explain-title", f"Message {name}")
        assert page.complaints == []
    # The address can be passed on.
    with chromium.page(f"{url(strict)}#explain?id={name}") as page:
        shows(page, "#explain-summary", "delivery-limit")
        assert kinds(page) == story
        assert page.js("document.querySelector('nav [aria-current]').hash") == "#explain"
        assert page.complaints == []
    peer.leave()


@pytest.mark.full
def test_reason_why_a_subscriber_got_nothing_is_shown(page: Page, port: int) -> None:
    peer = anonymous(port, login="anna", passcode="x")
    peer.subscribe("/topic/other")
    peer.send("/topic/prices", "x")
    page.go("explain")
    ask_of(page, "/topic/prices", user="anna")
    shows(page, "#explain-summary", "has no subscription that reaches /topic/prices")
    assert kinds(page) == ["lost", "event", "event"]  # that it came, and what it subscribed to
    assert "ttl_ms = 0" in page.text("#explain-events .rule")
    ask_of(page, "/topic/prices", user="")
    shows(page, "#explain-summary", "policy: none names it")
    assert page.text("#explain-title") == "/topic/prices"
    # The same query again: one more message was lost.
    peer.send("/topic/prices", "x")
    page.click("#explain-place-form button")
    page.until("document.querySelectorAll('#explain-events li').length === 2")
    ask_of(page, "/topic/prices", session="17")
    shows(page, "#explain-summary", "session 17 is not connected")
    peer.leave()


@pytest.mark.full
def test_the_newest_event_of_a_destination_comes_first(page: Page, port: int) -> None:
    peer = anonymous(port)
    peer.send("/queue/jobs", "x")
    peer.subscribe("/queue/jobs", ack="client")
    peer.get()
    page.go("explain")
    ask_of(page, "/queue/jobs")
    shows(page, "#explain-order", "newest first")
    shows(page, "#explain-subscribers", "client")
    page.click("#explain-subscribers a[href^='#connection']")
    shows(page, "#connection .list", "/queue/jobs")
    page.js("history.back()")
    shows(page, "#explain-order", "newest first")
    assert kinds(page) == ["delivered", "queued"]
    peer.leave()


@pytest.mark.full
def test_unexplainable_message_is_shown_as_such(page: Page, port: int) -> None:
    peer = anonymous(port)
    peer.subscribe("/topic/t")
    peer.send("/topic/t", "x")
    known = peer.get().headers["message-id"]
    page.go("explain")
    ask_about(page, "what?")
    shows(page, "#explain-status", "'what?' is not a message-id")
    shows(page, "#explain-status", "(bad-request)")
    assert page.js("document.querySelector('#explain-status.wrong') !== null")
    ask_about(page, known.rpartition("-")[0] + "-999999")
    shows(page, "#explain-summary", "No message has had that id")
    shows(page, "#explain-order", "No events are remembered for this.")
    shows(page, "#explain-horizon", "back to")
    assert not page.js("document.getElementById('explain-status').checkVisibility()")
    ask_about(page, "elsewhere.1-5")
    shows(page, "#explain-summary", "of an earlier start of this broker, or of another one")
    peer.leave()


@pytest.mark.full
def test_missing_history_is_shown_as_such(chromium: Chromium) -> None:
    with (
        running_broker(*OFTEN, "--explain-events", "0") as port,
        chromium.page(f"{url(port)}#explain?destination=/topic/t") as page,
    ):
        shows(page, "#explain-summary", "there were no messages to /topic/t")
        shows(page, "#explain-horizon", "or explain_events is 0")


@pytest.mark.full
def test_other_views_link_to_explanations(page: Page, port: int) -> None:
    dead_letter(port, "/queue/jobs", "x")
    peer = anonymous(port)
    peer.send("/topic/nobody", "x")
    open_queue(page, "/queue/DLQ.jobs")
    shows(page, "#queue .facts", "Sent to it")
    page.click("#queue .messages .death a")
    shows(page, "#explain-title", "/queue/jobs")
    open_queue(page, "/queue/DLQ.jobs")
    shows(page, "#queue .facts", "Sent to it")
    page.click('#queue .messages .head a[href*="id="]')
    shows(page, "#explain-title", "Message ")
    shows(page, "#explain-summary", "It waits in its queue.")
    assert kinds(page)[:1] == ["queued"]
    open_queue(page, "/queue/DLQ.jobs")
    shows(page, "#queue .facts", "Sent to it")
    page.click("#queue .tools span a[href^='#explain']")
    shows(page, "#explain-title", "/queue/DLQ.jobs")
    page.go("destinations")
    page.fill("#destinations-filter", "nobody")
    page.until("document.querySelectorAll('#destinations-table tbody tr').length === 1")
    page.click("#destinations-table td a")
    shows(page, "#explain-title", "/topic/nobody")
    page.go("events")
    # New rows would move the others away from under the mouse.
    page.click("#events-pause")
    page.fill("#events-filter", "/queue/jobs")
    page.until(
        "[...document.querySelectorAll('#events-table td[data-name=Destination]')]"
        ".every((each) => each.textContent === '/queue/jobs')"
    )
    page.click('#events-table a[href*="session="]')
    shows(page, "#explain-title", "/queue/jobs for session ")
    page.go("try")
    page.click("#subscribe-form button")
    shows(page, "#subscriptions", "/topic/hello")
    page.click("#send-form button")
    page.click("#received a")
    shows(page, "#explain-summary", "It was sent to 1 subscriber.")
    peer.leave()


@pytest.mark.full
def test_existing_names_are_suggested(page: Page, port: int) -> None:
    peer = anonymous(port, login="anna", passcode="x")
    peer.subscribe("/topic/t")
    page.go("connections")
    shows(page, "#connections-table", "anna")
    page.go("destinations")
    shows(page, "#destinations-table", "/topic/t")
    page.go("explain")
    page.js("document.querySelector('#explain-place-form [name=by]').value = 'user'")
    page.js("document.querySelector('#explain-place-form [name=who]').focus()")
    page.until("document.querySelector('#explain-destinations option[value=\"/topic/t\"]')")
    page.until("document.querySelector('#explain-clients option[value=anna]')")
    peer.leave()


@pytest.mark.full
def test_user_without_monitor_right_gets_no_explanation(chromium: Chromium, guarded: int) -> None:
    anna = PythonPeer(guarded, "1.2", {"login": "anna", "passcode": "secret"})
    anna.send("/topic/t", "x")
    with chromium.page(f"{url(guarded)}#explain?destination=/topic/t") as page:
        log_in(page, "carl")
        shows(page, "#login-why", "carl may not monitor this broker")
        assert not page.js("document.getElementById('explain').checkVisibility()")
        # dora may read the stream of figures, and that alone.
        log_in(page, "dora")
        live(page)
        shows(page, "#explain-status", "(not-authorized)")
        assert not page.js("document.getElementById('explain-answer').checkVisibility()")
    with chromium.page(f"{url(guarded)}#explain?destination=/topic/t") as page:
        shows(page, "#login-why", "requires a login")
        # No query is made without a login.
        assert page.requested.count(f"ws://127.0.0.1:{guarded}/ws") == 1
        # An unauthorized user is followed by an authorized one, on the same page.
        log_in(page, "carl")
        shows(page, "#login-why", "carl may not monitor this broker")
        log_in(page, "bob")
        shows(page, "#explain-summary", "1 sent, 0 delivered, 1 dropped")
        assert page.complaints == []
    anna.leave()


@pytest.mark.full
def test_a_client_can_put_nothing_into_the_figures(chromium: Chromium) -> None:
    """Without the stream, the page reads topics, to which clients may send."""
    with running_broker(*OFTEN, "--no-diag-stream") as port, chromium.page(url(port)) as page:
        live(page)
        peer = anonymous(port)
        for body in ("{", "null", "[]", '{"ts": 1}', "\u2603"):
            peer.send("DIAG/mine", body)
        peer.leave()
        shows(page, "#latest", "disconnect")
        assert "mine" not in page.text("#events")
        assert page.complaints == []


def test_largest_users_of_shared_resources_are_shown_as_text(
    chromium: Chromium, tmp_path: Path
) -> None:
    users, rules = tmp_path / "users", tmp_path / "acl.toml"
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("secret")
    users.write_text(f"{MARKUP}:{hashed}\nanna:{hashed}\n")
    users.chmod(0o600)
    rules.write_text('[[rule]]\nallow = "all"\nto = "**"\nuser = "*"\n')
    options = ("--passwd-file", str(users), "--acl-file", str(rules))
    with running_broker(*OFTEN, *options) as port, chromium.page(url(port)) as page:
        peer = anonymous(port, login=MARKUP, passcode="secret")
        peer.send("/queue/a", "x" * 1000)
        log_in(page, "anna")
        live(page)
        page.go("schedules")
        page.click("#schedules-again")
        shows(page, "#quotas-table", MARKUP)
        shows(page, "#quotas-table", "user")
        shows(page, "#quotas-refused", "since the start: 0")
        assert page.complaints == []
        peer.leave()


def test_names_and_bodies_are_text(chromium: Chromium, port: int) -> None:
    """Whatever clients call things, it does not become part of the page."""
    dead_letter(port, f"/queue/{MARKUP}", MARKUP, trace=MARKUP)
    peer = anonymous(port, login=MARKUP, passcode="x")
    peer.subscribe(f"/topic/{MARKUP}")
    peer.send(f"/topic/{MARKUP}", MARKUP, {MARKUP: MARKUP})
    with chromium.page(url(port)) as page:
        live(page)
        for view in VIEWS:
            page.go(view)
            if view not in ASKING:
                shows(page, "main", MARKUP)
        page.go("explain")
        ask_of(page, f"/queue/{MARKUP}", user=MARKUP)
        shows(page, "#explain-summary", f"({MARKUP}) from")
        shows(page, "#explain-title", f"/queue/{MARKUP} for user {MARKUP}")
        ask_about(page, MARKUP)
        shows(page, "#explain-status", MARKUP)
        open_queue(page, f"/queue/DLQ.{MARKUP}")
        shows(page, "#queue .messages", MARKUP)
        page.click("#queue .messages summary")
        press(page, "queue", "Select all shown")
        press(page, "queue", "Retry …")
        shows(page, "#confirm-choices", MARKUP)
        page.click("#confirm-no")
        page.go("connections")
        in_row(page, "connections", MARKUP, "a")
        shows(page, "#connection .facts", MARKUP)
        shows(page, "#connection .list", MARKUP)
        page.go("try")
        for form in ("subscribe", "send"):
            page.fill(f"#{form}-form [name=destination]", f"/topic/{MARKUP}")
        page.fill("#send-form [name=body]", MARKUP)
        page.click("#subscribe-form button")
        shows(page, "#subscriptions", MARKUP)
        page.click("#send-form button")
        shows(page, "#received", MARKUP)
        assert page.js("document.querySelectorAll('img').length") == 1
        assert page.js("document.querySelectorAll('[onerror]').length") == 0
        assert page.complaints == []
    peer.leave()


@pytest.mark.full
def test_follows_the_system_and_the_switch(page: Page) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    page.prefer("light")
    light = page.until(back)
    page.prefer("dark")
    dark = page.until(f"{back} !== {light!r} && {back}")
    page.click("#theme")
    page.until(f"{back} === {light!r}")
    page.call("Page.reload")
    page.until(
        f"document.getElementById('status')?.dataset.state === 'live' && {back} === {light!r}"
    )
    page.click("#theme")
    page.until(f"{back} === {dark!r}")
    page.prefer("light")
    assert page.js(back) == dark
    page.click("#theme")
    page.until(f"{back} === {light!r}")


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_sufficient_contrast(page: Page, scheme: str) -> None:
    """WCAG 2, AA: 4.5 to 1 for all colours that text has."""
    page.prefer(scheme)
    for name in ("ink", "soft", "mark", "in", "out", "good", "warn", "bad"):
        for ground in ("card", "back"):
            assert page.js(CONTRAST % (name, ground)) >= 4.5, (name, ground)
    assert page.js(CONTRAST % ("on-mark", "mark")) >= 4.5


CONTRAST = """(() => {
  const light = (name) => {
    const probe = document.createElement("i");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const parts = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3);
    probe.remove();
    const [r, g, b] = parts.map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [high, low] = [light("%s"), light("%s")].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
})()"""


@pytest.mark.full
def test_a_phone_needs_no_sideways_scroll(chromium: Chromium, port: int) -> None:
    peer = anonymous(port, login="W" * 200, passcode="x")
    peer.subscribe(LONG)
    peer.send(LONG, "W" * 2000)
    peer.send("/queue/" + "W" * 300, "x")
    dead_letter(port, "/queue/jobs", "x")
    with chromium.page(url(port), 360, 740) as page:
        live(page)
        for view in VIEWS:
            page.go(view)
            if view not in ASKING:
                shows(page, "main", "WWWW")
            if view == "explain":
                ask_of(page, LONG, user="W" * 200)
                shows(page, "#explain-events", "WWWW")
            assert page.js("document.documentElement.scrollWidth") == 360, view
            inside = "[...document.querySelectorAll('button, input, a, .card')]"
            beyond = page.js(
                f"{inside}.filter((each) => !each.closest('nav') && each.checkVisibility()"
                " && each.getBoundingClientRect().right > 360).map((each) => each.outerHTML)"
            )
            assert beyond == [], view
        assert page.complaints == []
    peer.leave()


@pytest.mark.full
def test_everything_that_can_be_pressed_has_a_name(page: Page, port: int) -> None:
    dead_letter(port, "/queue/jobs", "x")
    open_queue(page, "/queue/DLQ.jobs")
    shows(page, "#queue .messages", "x-death-reason")
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "link", "textbox", "searchbox", "combobox", "img", "checkbox"}
    unnamed = [
        node["role"]["value"]
        for node in tree
        if node.get("role", {}).get("value") in roles and not node["ignored"]
        if not node.get("name", {}).get("value")
    ]
    assert unnamed == []
    names = {node.get("name", {}).get("value") for node in tree}
    assert {"Retry …", "Purge …"} <= names


def focused(page: Page) -> str:
    """Return the text, or else the id, of the element with the focus. Mark it as seen."""
    found = page.js(
        "(() => { const each = document.activeElement; each.dataset.seen = '';"
        " return each.textContent.trim().slice(0, 40) || each.id; })()"
    )
    return f"{found}"


@pytest.mark.full
def test_the_keyboard_will_do(page: Page) -> None:
    page.press("Tab", 9)
    assert page.js("document.activeElement.className") == "skip"
    page.press("Enter", 13, "\r")
    assert page.js("document.activeElement.id") == "main"
    page.go("connections")
    page.js("document.querySelector('#connections-table th button').focus()")
    page.press("Enter", 13, "\r")
    assert page.js("document.querySelector('#connections-table th').ariaSort") == "ascending"
    # The focus does not stay on a link that is hidden. The list may still be on its way.
    page.until("document.querySelector('#connections-table td a')")
    page.js("document.querySelector('#connections-table td a').focus()")
    page.press("Enter", 13, "\r")
    page.until("!document.getElementById('connection').hidden")
    page.until("document.activeElement.id === 'main'")
    assert page.js("document.title").endswith(" · Connections · trio_stomp")


@pytest.mark.full
def test_tab_reaches_each_action_with_a_visible_focus_and_dialogs_keep_it(
    page: Page, port: int
) -> None:
    dead_letter(port, "/queue/jobs", "x" * 500)
    open_queue(page, "/queue/DLQ.jobs")
    shows(page, "#queue .messages", "x-death-reason")
    page.until("!document.querySelector('#queue button:disabled')")
    page.js("document.activeElement.blur()")
    stops: list[str] = []
    style = "getComputedStyle(document.activeElement).outlineStyle"
    is_page = "document.activeElement === document.body"  # after the last stop, before the first
    while stops.count(stops[0] if stops else "") < 2:
        page.press("Tab", 9)
        stops.append(focused(page))
        assert len(stops) < 200, stops
        assert page.js(f"{is_page} || {style} === 'solid'"), stops[-1]
    missed = page.js(
        "[...document.querySelectorAll('button, a[href], input, select, textarea, summary, pre')]"
        ".filter((each) => each.checkVisibility() && !('seen' in each.dataset))"
        ".map((each) => each.outerHTML)"
    )
    assert missed == []
    page.js(
        "[...document.querySelectorAll('#queue button')]"
        ".find((each) => each.textContent === 'Purge …').focus()"
    )
    page.press("Enter", 13, "\r")
    shows(page, "#confirm", "Purge")
    assert focused(page) == "Cancel"
    for _ in range(6):
        page.press("Tab", 9)
        assert page.js(f"{is_page} || document.activeElement.closest('#confirm') !== null")
    page.press("Escape", 27)
    page.until("!document.getElementById('confirm').open")
    assert focused(page) == "Purge …"
    press(page, "queue", "Pause")
    page.until("document.getElementById('announcement').textContent.includes('hands out nothing')")


@pytest.mark.full
def test_a_table_can_be_sorted_before_anything_has_come(page: Page) -> None:
    order = page.js(
        """
        import(document.querySelector("script[type=module]").src.replace(/[^/]+$/, "lib/table.js"))
        .then(
          ({ Table }) => {
            const place = document.createElement("div");
            const columns = [{ name: "name", text: (item) => item, value: (item) => item }];
            new Table(place, { label: "things", columns, key: (item) => item, empty: "nothing" });
            place.querySelector("th button").click();
            return place.querySelector("th").ariaSort;
          },
        )
        """
    )
    assert order == "ascending"


@pytest.mark.full
def test_asks_for_a_login_and_keeps_it_to_itself(chromium: Chromium, guarded: int) -> None:
    with chromium.page(url(guarded)) as page:
        shows(page, "#login", "requires a login")
        assert page.js("document.getElementById('overview').hidden")
        log_in(page, "anna", "wrong")
        shows(page, "#login-why", "is wrong")
        log_in(page, "anna")
        live(page)
        page.go("connections")
        shows(page, "#connections-table", "anna")
        page.go("try")
        page.click("#send-form button")
        shows(page, "#send-result", "The broker has accepted it")
        shows(page, "#wire", "passcode:•••")
        assert "secret" not in page.text("main")
        assert page.js("JSON.stringify([{...localStorage}, {...sessionStorage}])") == "[{},{}]"
        assert page.js("document.cookie") == ""
        assert "secret" not in page.js("document.querySelector('#login-form').outerHTML")
        assert page.js("document.querySelector('#login-form [name=passcode]').value") == ""
        page.call("Page.reload")
        shows(page, "#login", "requires a login")
        assert page.complaints == []


def test_forbidden_actions_are_off_and_change_nothing(chromium: Chromium, guarded: int) -> None:
    anna = PythonPeer(guarded, "1.2", {"login": "anna", "passcode": "secret"})
    anna.send("/queue/full", "x")
    off = "[...document.querySelectorAll('#queue button:disabled')].map((each) => each.textContent)"
    actions = ["Pause", "Move all …", "Redeliver …", "Purge …", "Delete …", "Retry …", "Move …"]
    with chromium.page(url(guarded)) as page:
        log_in(page, "bob")
        live(page)
        open_queue(page, "/queue/full")
        page.until(f"{off}.join() === {','.join([*actions, 'Drop …', 'Send'])!r}")
        purge = "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Purge …')"
        assert page.js(f"{purge}.title") == "bob may not request purge at /queue/full."
        # The broker decides, even if the page were wrong.
        # In one step, because the page turns the button off again with the next figures.
        page.js(f"{purge}.disabled = false, {purge}.click()")
        page.click("#confirm-yes")
        shows(page, "#queue .result", "not-authorized")
        live(page)
        shows(page, "#queue .tile strong", "1")
        page.js("location.hash = '#stream?name=/stream/DIAG'")
        page.until(
            "document.querySelector('#stream button:disabled')?.title.includes('request trim')"
        )
        # The next user of the same page may.
        page.click("#log-out")
        log_in(page, "anna")
        live(page)
        open_queue(page, "/queue/full")
        press(page, "queue", "Purge …")
        page.click("#confirm-yes")
        shows(page, "#queue .result", "1 message deleted")
    anna.leave()


@pytest.mark.full
def test_user_without_monitor_right_sees_own_things(chromium: Chromium, guarded: int) -> None:
    carl = PythonPeer(guarded, "1.2", {"login": "carl", "passcode": "secret"})
    carl.subscribe("/topic/x", id="carls", headers={"durable": "true"})
    carl.send("/topic/later", "x", {"AMQ_SCHEDULED_DELAY": "3600000"})
    carl.leave()
    with chromium.page(f"{url(guarded)}#durables") as page:
        shows(page, "#login", "requires a login")
        log_in(page, "carl")
        shows(page, "#durables-table", "carls")
        page.go("schedules")
        shows(page, "#schedules-table", "/topic/later")
        page.go("try")
        page.click("#subscribe-form button")
        shows(page, "#subscriptions", "/topic/hello")
        page.click("#send-form button")
        shows(page, "#received", "Hello, world")
        page.click('nav a[href="#overview"]')
        shows(page, "#login-why", "carl may not monitor this broker")
        log_in(page, "anna")
        live(page)


@pytest.mark.full
def test_comes_back_when_the_broker_does(chromium: Chromium) -> None:
    with running_broker(*OFTEN) as port:
        context = chromium.page(url(port))
        page = context.__enter__()
        live(page)
    try:
        shows(page, "#status", "retrying in")
        shows(page, "#status", "old")
        page.until("!document.getElementById('notice').hidden")
        with running_broker(*OFTEN, "--port", str(port)):
            live(page)
            page.until("document.getElementById('notice').hidden")
            page.go("events")
            shows(page, "#events-table", "the broker was started")
            page.go("connections")
            page.until("document.querySelectorAll('#connections-table tbody tr').length === 1")
    finally:
        context.__exit__(None, None, None)


@pytest.mark.full
def test_does_without_a_stream(chromium: Chromium) -> None:
    with running_broker(*OFTEN, "--no-diag-stream") as port, chromium.page(url(port)) as page:
        live(page)
        shows(page, "#notice", "no history")
        page.until("document.querySelector('#tiles article:nth-child(3) strong').innerText === '1'")
        anonymous(port).leave()
        shows(page, "#latest", "disconnect")
        assert page.complaints == []


@pytest.mark.full
def test_old_figures_are_called_old(chromium: Chromium) -> None:
    with running_broker("--diag-interval-s", "3600") as port, chromium.page(url(port)) as page:
        anonymous(port).leave()
        live(page)
        # An event has come, its own connect or this one's, and nothing for longer than the page
        # takes for an interval.
        page.js("(() => { const now = Date.now; Date.now = () => now() + 60000; })()")
        page.until("document.getElementById('status').dataset.state === 'stale'")
        assert re.search(r"\d+ s old|1 min", page.text("#status"))
