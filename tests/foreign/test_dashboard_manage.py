"""Operations in the dashboard: pages of single objects, and all actions that change something."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.chromium import Chromium, Page
from tests.support.dashboard import (
    MARKUP,
    OFTEN,
    anonymous,
    confirm,
    dead_letter,
    in_row,
    live,
    log_in,
    open_queue,
    press,
    row,
    shows,
    tick,
    url,
)
from tests.support.foreign import PythonPeer, running_broker
from tests.support.nats import running_nats

pytestmark = pytest.mark.foreign


def test_a_queue_is_created_filled_searched_moved_and_deleted(page: Page, port: int) -> None:
    page.go("queues")
    page.click("#queues-create")
    confirm(page, "/queue/new")
    shows(page, "#queues-result", "/queue/new was created.")
    open_queue(page, "/queue/new")
    page.fill("#queue .send [name=headers]", "kind:apple")
    page.fill("#queue .send [name=body]", "two green apples")
    press(page, "queue", "Send")
    shows(page, "#queue .send .result", "it waits, stored in memory")
    page.fill("#queue .send [name=headers]", "kind:pear")
    page.fill("#queue .send [name=body]", "a pear")
    press(page, "queue", "Send")
    shows(page, "#queue .messages", "a pear")
    page.fill("#queue .search [name=selector]", "kind = 'apple'")
    press(page, "queue", "Search")
    page.until("!document.querySelector('#queue .messages').innerText.includes('a pear')")
    shows(page, "#queue .messages", "two green apples")
    press(page, "queue", "Clear")
    page.fill("#queue .search [name=body]", "pear")
    press(page, "queue", "Search")
    page.until("!document.querySelector('#queue .messages').innerText.includes('apples')")
    press(page, "queue", "Clear")
    shows(page, "#queue .messages", "apples")
    tick(page, "apples")
    press(page, "queue", "Move …")
    confirm(page, "/queue/fruit")
    shows(page, "#queue .messages-result", "1 message.")
    press(page, "queue", "Move all …")
    confirm(page, "/queue/fruit")
    shows(page, "#queue .result", "/queue/new: 1 message moved to /queue/fruit.")
    peer = anonymous(port)
    peer.subscribe("/queue/fruit")
    assert [peer.get().body for _ in range(2)] == ["two green apples", "a pear"]
    peer.leave()
    shows(page, "#queue .tile strong", "0")
    press(page, "queue", "Delete …")
    shows(page, "#confirm", "0 messages")
    confirm(page)
    shows(page, "#queue .result", "/queue/new: deleted.")


@pytest.mark.full
def test_all_messages_that_match_are_operated_on_though_few_are_shown(
    page: Page, port: int
) -> None:
    peer = anonymous(port)
    for number in range(180):
        kind = "pear" if number % 3 else "apple"
        peer.try_send("/queue/new", f"message {number}", {"kind": kind})
    peer.settle()
    bodies = [f"letter {number}" for number in range(60)]
    dead_letter(port, "/queue/jobs", *bodies)
    open_queue(page, "/queue/new")
    page.fill("#queue .search [name=selector]", "kind = 'pear'")
    press(page, "queue", "Search")
    page.until("!document.querySelector('#queue .messages').innerText.includes('message 0')")
    shows(page, "#queue .messages-count", "50 shown")
    tick(page, "message 1\n")
    press(page, "queue", "Show more")
    shows(page, "#queue .messages-count", "100 shown")
    assert page.js("document.querySelectorAll('#queue .messages :checked').length") == 1
    press(page, "queue", "Select all that match")
    press(page, "queue", "Drop …")
    shows(page, "#confirm", "Drop all messages that match?")
    confirm(page)
    shows(page, "#queue .messages-result", "Drop: 120 messages.")
    press(page, "queue", "Clear")
    shows(page, "#queue .messages", "message 0")
    shows(page, "#queue .messages-count", "60 waiting")
    open_queue(page, "/queue/DLQ.jobs")
    shows(page, "#queue .messages-count", "50 shown, 60 waiting")
    press(page, "queue", "Select all that match")
    press(page, "queue", "Retry …")
    shows(page, "#confirm-choices", "all to /queue/jobs")
    confirm(page)
    shows(page, "#queue .messages-result", "Retry: 60 messages.")
    peer.subscribe("/queue/jobs")
    assert [peer.get().body for _ in bodies] == bodies
    peer.leave()


@pytest.mark.full
def test_a_queue_is_paused_and_unacknowledged_messages_are_redelivered(
    page: Page, port: int
) -> None:
    peer = anonymous(port)
    selector = f"{MARKUP!r} <> kind OR kind IS NULL"
    headers = {"selector": selector}
    peer.subscribe("/queue/jobs", ack="client-individual", headers=headers)
    peer.send("/queue/jobs", "one")
    name = peer.get().headers["message-id"]
    open_queue(page, "/queue/jobs")
    shows(page, "#queue .list", name)
    shows(page, "#queue .list", "client-individual")
    assert selector not in page.text("#queue .list")
    page.click("#queue .list summary")
    shows(page, "#queue .list", selector)
    shows(page, "#queue .facts", "Delivered again")
    press(page, "queue", "Pause")
    shows(page, "#queue .result", "hands out nothing until it is resumed")
    shows(page, "#queue .badges", "paused")
    peer.send("/queue/jobs", "two")
    assert peer.is_quiet()
    press(page, "queue", "Resume")
    assert peer.get().body == "two"
    shows(page, "#queue .tile:nth-child(2) strong", "2")
    press(page, "queue", "Redeliver …")
    shows(page, "#confirm", "2 unacknowledged messages")
    confirm(page)
    shows(page, "#queue .result", "2 messages returned to the queue")
    again = [peer.get() for _ in range(2)]
    assert [each.body for each in again] == ["one", "two"]
    page.click("#queue .list a[href^='#connection']")
    shows(page, "#connection .list", "/queue/jobs")
    page.js("history.back()")
    shows(page, "#queue .name", "/queue/jobs")
    peer.leave()


@pytest.mark.full
def test_a_connection_shows_its_subscriptions_and_is_closed(page: Page, port: int) -> None:
    peer = anonymous(port, login="anna", passcode="x")
    peer.subscribe("/topic/prices")
    peer.send("/topic/prices", "x" * 100)
    page.go("connections")
    page.fill("#connections-filter", "anna")
    page.until("document.querySelectorAll('#connections-table tbody tr').length === 1")
    in_row(page, "connections", "anna", "a")
    shows(page, "#connection .list", "/topic/prices")
    shows(page, "#connection .facts", "STOMP 1.2 over tcp")
    shows(page, "#connection .badges", "anna")
    press(page, "connection", "Close …")
    shows(page, "#confirm", "anna, session ")
    confirm(page)
    shows(page, "#connection .result", "The connection was closed.")
    assert peer.refused().headers["code"] == "closed-by-operator"
    page.go("connections")
    shows(page, "#ended-table", "closed-by-operator")
    page.go("events")
    shows(page, "#events-table", "close")


@pytest.mark.full
def test_a_drop_names_its_destination(page: Page, port: int) -> None:
    peer = anonymous(port)
    peer.send("/topic/nobody", "x")
    shows(page, "#drops", "no-subscriber: /topic/nobody")
    peer.leave()


@pytest.mark.full
def test_a_durable_subscription_is_ended(page: Page, port: int) -> None:
    peer = anonymous(port, **{"client-id": "till"})
    peer.subscribe("/topic/news", id="news", headers={"activemq.subscriptionName": "news"})
    peer.leave()
    anonymous(port).send("/topic/news", "x")
    page.go("durables")
    shows(page, "#durables-table", "away")
    in_row(page, "durables", "news", "button")
    shows(page, "#confirm", "1 waiting message")
    confirm(page)
    shows(page, "#durables-result", "news has ended.")
    shows(page, "#durables-table", "No durable subscription matches")


@pytest.mark.full
def test_buttons_in_rows_are_off_for_things_of_other_users(
    chromium: Chromium, guarded: int
) -> None:
    carl = PythonPeer(guarded, "1.2", {"login": "carl", "passcode": "secret"})
    carl.subscribe("/topic/x", id="carls", headers={"durable": "true"})
    carl.send("/topic/later", "x", {"AMQ_SCHEDULED_DELAY": "3600000"})
    carl.leave()
    with chromium.page(url(guarded)) as page:
        log_in(page, "bob")
        live(page)
        for view, reason in (("durables", "may not end"), ("schedules", "may not cancel")):
            page.go(view)
            page.until(f"document.querySelector('#{view} td button')?.title.includes({reason!r})")
            assert page.js(f"document.querySelector('#{view} td button').disabled")
        page.click("#log-out")
        log_in(page, "anna")
        live(page)
        for view in ("durables", "schedules"):
            page.go(view)
            page.until(f"document.querySelector('#{view} td button')?.disabled === false")


@pytest.mark.full
def test_a_stream_is_read_at_any_time(chromium: Chromium, tmp_path: Path) -> None:
    policies = tmp_path / "policies.toml"
    policies.write_text('["/topic/prices"]\nstream = true\n')
    options = (*OFTEN, "--policies", str(policies))
    with running_broker(*options) as port, chromium.page(url(port)) as page:
        live(page)
        peer = anonymous(port)
        for number in range(120):
            peer.send("/topic/prices", f"price {number}")
        page.go("streams")
        in_row(page, "streams", "/stream/topic/prices", "a")
        shows(page, "#stream .facts", "0 to 119")
        shows(page, "#stream .messages", "price 119")
        press(page, "stream", "Older")
        shows(page, "#stream .messages", "price 20")
        page.js(
            "(() => { const slider = document.querySelector('#stream input[type=range]');"
            " slider.value = 0; slider.dispatchEvent(new Event('input'));"
            " slider.dispatchEvent(new Event('change')); })()"
        )
        shows(page, "#stream .messages", "price 0\n")
        press(page, "stream", "Newer")
        shows(page, "#stream .messages", "price 50")
        press(page, "stream", "Trim before these …")
        shows(page, "#confirm", "50 messages before offset 50")
        confirm(page)
        shows(page, "#stream .result", "50 messages deleted; the first is 50 now.")
        assert page.complaints == []
        peer.leave()


@pytest.mark.full
def test_effective_settings_and_own_user_are_shown(chromium: Chromium, guarded: int) -> None:
    with chromium.page(f"{url(guarded)}#settings") as page:
        log_in(page, "anna")
        live(page)
        shows(page, "#who", "anna")
        shows(page, "#settings .facts", "passcode")
        shows(page, "#settings", "diag_interval_s")
        shows(page, "#settings", "--diag-interval-s")
        shows(page, "#settings", "acl.toml:2")
        for user in ("bob", "carl", "dora"):
            shows(page, "#settings", user)
        page.fill("#settings-filter", "max_memory")
        page.until("!document.getElementById('settings').innerText.includes('diag_interval_s')")
        press(page, "settings", "Read the settings again …")
        confirm(page)
        shows(page, "#settings-result", "The settings were read again.")
        page.js(
            "window.saved = []; const make = URL.createObjectURL;"
            " URL.createObjectURL = (blob) => (saved.push(blob), make.call(URL, blob))"
        )
        press(page, "settings", "Export")
        shows(page, "#settings-result", "definitions.json")
        assert '"version"' in page.js("saved[0].text()")
        assert page.complaints == []
    with chromium.page(f"{url(guarded)}#settings") as page:
        log_in(page, "bob")
        live(page)
        shows(page, "#settings", "(not-authorized)")
        shows(page, "#settings", "diag_interval_s")


@pytest.mark.full
def test_definitions_are_imported_after_a_look_at_the_changes(
    page: Page, port: int, tmp_path: Path
) -> None:
    page.go("queues")
    page.click("#queues-create")
    confirm(page, "/queue/old")
    shows(page, "#queues-result", "was created")
    page.go("settings")
    file = tmp_path / "broker.toml"

    def choose(content: str) -> None:
        file.write_text(content)
        chooser = page.call("Runtime.evaluate", expression="document.querySelector('[type=file]')")
        page.call(
            "DOM.setFileInputFiles",
            files=[str(file)],
            objectId=chooser["result"]["objectId"],
        )

    choose('version = 1\nqueues = [{name = "/queue/old"}, {name = "/queue/imported"}]')
    shows(page, "#confirm", "Import broker.toml?")
    shows(page, "#confirm-text", "1 queue to create: /queue/imported; 1 already there.")
    page.click("#confirm-no")
    page.go("queues")
    page.until(row("/queue/old"))
    assert not page.js(row("/queue/imported"))
    page.go("settings")
    choose('version = 1\nqueues = [{name = "/queue/old"}, {name = "/queue/imported"}]')
    confirm(page)
    shows(page, "#settings-result", "1 queue created: /queue/imported; 1 already there.")
    choose("version = 1\nqueues = 5")
    shows(page, "#settings-result", "(invalid-definitions)")
    page.go("queues")
    page.until(row("/queue/imported"))


@pytest.mark.full
def test_after_logout_the_next_user_sees_nothing_of_the_last_one(
    chromium: Chromium, guarded: int
) -> None:
    anna = PythonPeer(guarded, "1.2", {"login": "anna", "passcode": "secret"})
    anna.send("/queue/full", "nobody else's business")
    with chromium.page(url(guarded)) as page:
        log_in(page, "anna")
        live(page)
        open_queue(page, "/queue/full")
        shows(page, "#queue .messages", "business")
        page.click("#log-out")
        shows(page, "#login", "requires a login")
        assert "business" not in page.js("document.documentElement.outerHTML")
        # The next user of the same page sees nothing of it either, unless allowed to.
        log_in(page, "bob")
        live(page)
        shows(page, "#queue", "(not-authorized)")
        assert "business" not in page.js("document.documentElement.outerHTML")
    anna.leave()


@pytest.mark.full
def test_history_is_read_back_as_far_as_the_stream_holds(page: Page, port: int) -> None:
    peer = anonymous(port)
    for _ in range(100):
        peer.send("/queue/q", "x")

    def choose(view: str) -> None:
        page.js(
            f"(() => {{ const span = document.querySelector('#{view} .span select');"
            " span.value = '1'; span.dispatchEvent(new Event('change')); })()"
        )
        shows(page, f"#{view} .span-note", "The stream holds ")
        shows(page, f"#{view} .span-note", "a reading every ")

    choose("overview")
    open_queue(page, "/queue/q")
    choose("queue")
    page.js("location.hash = '#queue?name=/queue/never'")
    shows(page, "#queue .result", "The queue does not exist")
    assert page.text("#queue .span-note") == ""
    peer.leave()


@pytest.mark.full
def test_page_works_alone_and_reports_a_deleted_queue(chromium: Chromium, port: int) -> None:
    dead_letter(port, "/queue/jobs", "one")
    with chromium.page(f"{url(port)}#queue?name=/queue/DLQ.jobs") as page:
        shows(page, "#queue .messages", "one")
        assert page.js("document.querySelector('nav [aria-current]').hash") == "#queues"
        page.js("location.hash = '#queue?name=/queue/never'")
        shows(page, "#queue .result", "The queue does not exist")
        page.until("document.querySelector('#queue .messages-result').hidden")
        page.js("location.hash = '#queue?name=/queue/DLQ.jobs'")
        shows(page, "#queue .tile strong", "1")
        press(page, "queue", "Purge …")
        confirm(page)
        shows(page, "#queue .result", "1 message deleted")
        # An empty queue that nobody created is forgotten. Its figures are, too.
        page.until("/^[0–]$/.test(document.querySelector('#queue .tile strong').textContent)")
        page.until("document.querySelector('#queue .messages-result').hidden")
        page.go("queues")
        page.until(row("/queue/jobs"))


@pytest.mark.full
def test_the_client_of_the_page_keeps_last_values_watches_wildcards_and_asks(page: Page) -> None:
    def send(destination: str, body: str, headers: str = "") -> None:
        page.fill("#send-form [name=destination]", destination)
        page.fill("#send-form [name=headers]", headers)
        page.fill("#send-form [name=body]", body)
        page.click("#send-form button")
        shows(page, "#send-result", "The broker has accepted it")

    page.go("try")
    for name in ("/topic/prices/**", "/queue/answers", "/queue/asked"):
        page.fill("#subscribe-form [name=destination]", name)
        page.click("#subscribe-form button")
        shows(page, "#subscriptions", name)
    send("/topic/prices/tea", "5", "retain:set")
    shows(page, "#received", "/topic/prices/tea")
    send("/queue/asked", "two apples", "reply-to:/queue/answers")
    shows(page, "#received", "two apples")
    shows(page, "#wire", "reply-to:/queue/answers")
    page.go("last-values")
    in_row(page, "last-values", "/topic/prices/tea", "button")
    confirm(page)
    shows(page, "#last-values-result", "/topic/prices/tea has no last value now.")
    shows(page, "#last-values-table", "No topic has a last value")


@pytest.mark.full
def test_the_client_of_the_page_sends_repeatedly_formats_messages_and_subscribes_durably(
    page: Page, port: int
) -> None:
    page.go("try")
    page.fill("#subscribe-form [name=headers]", "durable")
    page.click("#subscribe-form button")
    shows(page, "#try-status", "name:value")
    page.fill("#subscribe-form [name=headers]", "durable:true\nid:audit\nselector:n = 1")
    page.click("#subscribe-form button")
    shows(page, "#subscriptions", "/topic/hello")
    page.fill("#received-template", "{n} {destination} <{header:n}> {body} {none}")
    page.fill("#send-form [name=headers]", "n:1")
    page.fill("#send-form [name=times]", "3")
    page.fill("#send-form [name=pause]", "0.01")
    page.click("#send-form button")
    shows(page, "#send-result", "3 messages sent. The last: The broker has accepted it")
    shows(page, "#received", "3 /topic/hello <1> Hello, world {none}")
    page.fill("#send-form [name=pause]", "3000")
    page.click("#send-form button")
    shows(page, "#send-result", "Send: 1 of 3")
    page.click("#send-result button")
    shows(page, "#send-result", "Send: stopped")
    page.js("new Promise((resolve) => setTimeout(resolve, 100))")
    assert page.text("#received-count") == "4"
    page.fill("#send-form [name=headers]", "n:2")
    page.fill("#send-form [name=times]", "1")
    page.click("#send-form button")
    shows(page, "#send-result", "no subscribers")
    page.go("durables")
    shows(page, "#durables-table", "audit")


@pytest.mark.full
def test_the_nodes_of_a_cluster_are_shown_with_their_partitions(
    chromium: Chromium, tmp_path: Path
) -> None:
    node = ("--node", "north", "--data-dir", str(tmp_path / "data"), "--cluster-partitions", "2")
    with ExitStack() as stack:
        (server,) = stack.enter_context(running_nats(tmp_path))
        cluster = ("--cluster", f"nats://127.0.0.1:{server.port}", "--cluster-replicas", "1")
        port = stack.enter_context(running_broker(*OFTEN, *cluster, *node))
        peer = anonymous(port)
        with chromium.page(url(port)) as page:
            live(page)
            page.go("cluster")
            peer.send("/queue/new", "x", {"persistent": "true"})
            shows(page, "#cluster-tiles", "/s")
            page.until("document.querySelectorAll('#cluster-table tbody tr').length === 2")
            shows(page, "#cluster-table", "owner")
            shows(page, "#cluster-table", "north")
            shows(page, "#cluster-tiles", "of 1 node")
            assert page.complaints == []
        peer.leave()
