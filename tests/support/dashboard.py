"""The dashboard of a broker in a headless browser: brokers, pages, and what users do there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import argon2

from tests.support.chromium import Page
from tests.support.foreign import PythonPeer, running_broker

OFTEN = ("--diag-interval-s", "0.2")
VIEWS = (
    "overview", "connections", "destinations", "queues", "durables", "streams", "schedules",
    "last-values", "latency", "events", "insight", "explain", "settings", "try",
)  # fmt: skip
ASKING = (
    "durables", "streams", "insight", "explain", "schedules", "last-values", "settings", "try",
)  # fmt: skip
"""Views that are empty until the user submits a query."""
MARKUP = "<img src=x onerror=alert(1)>"
USERS = ("anna", "bob", "carl", "dora")
RULES = """
[[rule]]
allow = "all"
to = "**"
user = "anna"

[[rule]]
allow = "monitor"
to = "**"
user = "bob"

[[rule]]
allow = ["send", "receive", "create"]
to = "/topic/**"
user = "carl"

[[rule]]
allow = "monitor"
to = "/stream/DIAG"
user = "dora"
"""


@contextmanager
def guarded_broker(directory: Path) -> Iterator[int]:
    """Run a broker with the users and rules above; its port."""
    users, rules = directory / "users", directory / "acl.toml"
    # Cheap to check, and hashed: of others the broker's first line would warn.
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("secret")
    users.write_text("".join(f"{name}:{hashed}\n" for name in USERS))
    users.chmod(0o600)
    rules.write_text(RULES)
    options = ("--passwd-file", str(users), "--acl-file", str(rules))
    with running_broker(*OFTEN, *options) as found:
        yield found


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/"


def live(page: Page) -> None:
    page.until("document.getElementById('status').dataset.state === 'live'")


def log_in(page: Page, user: str, passcode: str = "secret") -> None:
    page.until("!document.getElementById('login').hidden")
    page.fill("#login-form [name=login]", user)
    page.fill("#login-form [name=passcode]", passcode)
    page.click("#login-form button")


def anonymous(port: int, version: str = "1.2", **headers: str) -> PythonPeer:
    return PythonPeer(port, version, headers)


def shows(page: Page, place: str, text: str) -> None:
    """Wait until a text can be read somewhere."""
    page.until(f"document.querySelector({place!r}).innerText.includes({text!r})")


def row(name: str) -> str:
    """The row of a queue, in JavaScript."""
    return (
        "[...document.querySelectorAll('#queues-table tr')]"
        f".find((row) => row.firstChild.textContent.startsWith({name!r}))"
    )


def waiting(page: Page, name: str, count: str) -> None:
    page.until(f"{row(name)}.children[1].textContent === {count!r}")


def open_queue(page: Page, name: str) -> None:
    """Go to the page of a queue by its link."""
    page.go("queues")
    page.click_on(f"{row(name)}?.querySelector('a')")
    shows(page, "#queue .name", name)


def press(page: Page, view: str, label: str) -> None:
    """Press a button of a view by its label."""
    buttons = f"[...document.querySelectorAll('#{view} button')]"
    page.click_on(f"{buttons}.find((each) => each.textContent === {label!r})")


def tick(page: Page, text: str) -> None:
    """Tick the message that contains a text."""
    page.click_on(
        "[...document.querySelectorAll('#queue .messages li')]"
        f".find((each) => each.innerText.includes({text!r}))?.querySelector('input')"
    )


def in_row(page: Page, view: str, text: str, selector: str) -> None:
    """Click something in the row that contains a text."""
    page.click_on(
        f"[...document.querySelectorAll('#{view} tbody tr')]"
        f".find((row) => row.innerText.includes({text!r}))?.querySelector({selector!r})"
    )


def confirm(page: Page, *values: str) -> None:
    """Fill the fields of the dialog, and confirm it."""
    page.until("document.getElementById('confirm').open")
    for value in values:
        page.fill("#confirm-choices input", value)
    page.click("#confirm-yes")
    page.until("!document.getElementById('confirm').open")


def dead_letter(
    port: int, queue: str, *bodies: str, requeue: str = "false", **headers: str
) -> None:
    """Make dead letters."""
    peer = anonymous(port)
    peer.subscribe(queue, ack="client-individual")
    for body in bodies:
        peer.send(queue, body, headers)
        peer.nack(peer.get(), requeue=requeue)
    peer.leave()
