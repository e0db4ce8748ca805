"""Differences between two settings, and the effect of live options while the broker runs."""

import ast
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import attrs
import pytest
import trio

from tests.support.fakes import (
    MEMORY,
    WS_MEMORY,
    Client,
    Dial,
    WebSocketPipe,
    open_dial,
)
from tests.support.files import save
from tests.support.hostile import connect_narrow
from tests.support.limits import LIMITS, Limit, id_of
from tests.support.startup import use_settings
from tests.support.tls import authority
from trio_stomp import OptionError, Settings
from trio_stomp.broker import AccessRules, Action, DestinationPolicy, Queue, Rule
from trio_stomp.config import Change, adopt, changes, options, own, policy_book
from trio_stomp.store import Done, JournalOptions, JournalStore, Turn

PACKAGE = Path(__file__).parents[3] / "trio_stomp"
LIVE = {spec.name: spec for spec in options() if spec.live}
QUIET = {"diag_interval_s": 0.0, "websocket_ping_s": 0.0}
LONG_S = 1000.0


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Run a broker with default settings."""
    async with open_dial(**QUIET) as dial:
        await dial.start()
        yield dial


# --- differences ---------------------------------------------------------------------------------


def test_changed_options_are_reported_with_the_required_action():
    old, new = Settings.of(port=1, linger_s=1.0), Settings.of(port=2, linger_s=1.5, data_dir="/d")
    assert changes(old, new) == (
        Change("listen", "port", "1", "2", False),
        Change("server", "linger_s", "1.0", "1.5", True),
        Change("store", "data_dir", '""', '"/d"', False),
    )
    assert [str(each) for each in changes(old, new)] == [
        "[listen] port: 1 -> 2",
        "[server] linger_s: 1.0 -> 1.5",
        '[store] data_dir: "" -> "/d"',
    ]


def test_a_change_holds_no_password():
    old, new = (
        Settings.of(store_url=f"postgresql://ann:{word}@db/x") for word in ("secret", "hush")
    )
    (change,) = changes(old, new)
    assert "secret" not in repr(change)
    assert "hush" not in f"{change} {change!r}"


def test_changes_of_policies_are_listed_by_field():
    a, b = ("/topic/>", DestinationPolicy(ttl_ms=5)), ("q", DestinationPolicy(overflow="block"))
    new_a = ("/topic/>", DestinationPolicy(ttl_ms=6, max_bytes=1))
    old = Settings(destinations=(a, b))
    assert [str(each) for each in changes(old, Settings(destinations=(new_a,)))] == [
        '[destinations."/topic/>"]: ttl_ms = 5 -> ttl_ms = 6, max_bytes = 1',
        '[destinations."q"]: gone: overflow = "block"',
    ]
    more = Settings(destinations=(b, ("r", DestinationPolicy()), a))
    assert [str(each) for each in changes(old, more)] == [
        '[destinations."r"]: new: the defaults',
        '[destinations]: "/topic/>", "q" -> "q", "/topic/>"',
    ]
    assert all(each.is_live for each in changes(old, more))


def rules(place: str = "x:1", **more: object) -> Settings:
    rule = Rule(True, frozenset({Action.SEND}), ("**",), location=place)
    return Settings(rules=AccessRules((rule,), **more))  # type: ignore[arg-type]


def test_rules_that_differ_wherever_they_stand():
    assert changes(rules("x:1"), rules("x:9")) == ()
    (change,) = changes(rules(), rules(groups={"a": frozenset()}))
    text = "1 rules, 0 groups, 0 certificates -> 1 rules, 1 groups, 0 certificates"
    assert (str(change), change.is_live) == (f"[rules]: {text}", True)
    (change,) = changes(Settings(), rules())
    assert str(change) == "[rules]: none -> 1 rules, 0 groups, 0 certificates"


# --- adopting -------------------------------------------------------------------------------------


def test_only_live_options_are_adopted_and_all_are_reported():
    settings = Settings.of(port=1)
    group = settings.server
    new = attrs.evolve(
        Settings.of(port=2, linger_s=9.0, max_outbox_bytes=4096),
        destinations=(("a", DestinationPolicy()),),
        rules=AccessRules(),
    )
    result = adopt(settings, new)
    assert result == changes(Settings.of(port=1), new)
    assert settings.server is group  # what everybody has
    assert (group.linger_s, group.max_outbox_bytes) == (9.0, 32 * 1024 * 1024)
    assert settings.listen.port == 1
    assert (settings.destinations, settings.rules) == (new.destinations, new.rules)
    # Options that could not be adopted are reported again until a restart.
    assert [each.name for each in adopt(settings, new)] == ["port", "max_outbox_bytes"]


@pytest.mark.parametrize("name", sorted(LIVE.keys() - {"tls_login"}))
def test_each_live_option_is_adopted(name: str):
    spec, value = LIVE[name], other_value(name)
    settings = Settings()
    result = adopt(settings, Settings.of(**{name: value}))
    assert [(each.name, each.is_live) for each in result] == [(name, True)]
    assert settings == Settings.of(**{name: value})
    assert getattr(getattr(settings, spec.group), name) != spec.default


def other_value(name: str) -> object:
    """A value that is allowed, and not the default."""
    spec = LIVE[name]
    if spec.choices:
        return next(each for each in spec.choices if each != spec.default)
    if isinstance(spec.default, bool):
        return not spec.default
    return spec.default + (f"{name}.x" if isinstance(spec.default, str) else 1)  # type: ignore[operator]


def test_incompatible_options_are_refused_and_change_nothing():
    settings = Settings.of()
    new = Settings.of(
        linger_s=9.0,
        tls_cert="c",
        tls_client_ca="a",
        tls_client_certificates="required",
        tls_login="common-name",
    )
    with pytest.raises(OptionError) as caught:
        adopt(settings, new)
    assert str(caught.value) == (
        "[transport] tls_login is 'common-name', but needs tls_client_certificates to be optional"
        " or required; that requires a restart of the broker, and this change cannot be"
        " made before"
    )
    assert settings == Settings.of()


def test_settings_of_ones_own_share_no_group():
    settings = Settings.of(linger_s=1.0)
    copy = own(settings)
    assert copy == settings
    adopt(copy, Settings.of(linger_s=2.0))
    assert settings == Settings.of(linger_s=1.0)
    for field in attrs.fields(Settings):
        if field.name not in ("destinations", "rules"):
            assert getattr(copy, field.name) is not getattr(settings, field.name)


def test_the_book_of_policies():
    settings = attrs.evolve(
        Settings.of(max_redeliveries=7, ack_timeout_ms=8),
        destinations=(("/queue/a", DestinationPolicy(ttl_ms=5)),),
    )
    book = policy_book(settings)
    assert book.policy_for("/queue/a").ttl_ms == 5
    assert book.policy_for("x") == DestinationPolicy(max_redeliveries=7, ack_timeout_ms=8)


# --- where live options are read ------------------------------------------------------------------

MAKING = {"__init__", "__attrs_post_init__", "_assemble"}


def test_no_live_option_is_read_when_something_is_made():
    """It would be kept from then on, whatever the operator says later."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if path.stem in ("_options", "_limits", "_policies") or name.startswith("config/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name in MAKING:
                found += [
                    f"{name}:{each.lineno}: {each.attr}"
                    for each in ast.walk(node)
                    if isinstance(each, ast.Attribute) and each.attr in LIVE
                ]
    # The memory budget has a copy of the limit, which ``_serve`` keeps up to date.
    assert [each for each in found if not each.endswith(": max_memory_bytes")] == []


async def test_the_memory_of_the_process(dial: Dial):
    await reload(dial, max_memory_bytes=3 << 20)
    assert dial.server.memory.limit_bytes == 3 << 20


async def test_policies_reach_destinations_that_are_there_already(dial: Dial):
    client = await dial.connect()
    await client.subscribe("/queue/q", headers={"ack": "client"})
    await client.subscribe("/topic/t", id="2")
    destinations = dial.server.broker.destinations
    await reload(dial, persistent="always", ttl_ms=5000, max_redeliveries=1, ack_timeout_ms=9)
    queue, topic = destinations.find_current("/queue/q"), destinations.find_current("/topic/t")
    assert queue is not None
    assert topic is not None
    assert queue.persistent == "always"
    assert isinstance(queue.queue, Queue)
    policy = queue.queue.policy
    assert (policy.max_redeliveries, policy.ack_timeout_ms) == (1, 9)
    assert topic.ttl_s == 5
    new = Settings(destinations=(("/topic/t", DestinationPolicy(retain="always")),))
    dial.options.update(persistent="header")
    settings = dial.security.settings
    result = attrs.evolve(new, **{name: getattr(settings, name) for name in ("diag", "protocol")})
    await use_settings(settings, dial.security, dial.server, result, dial.security._read(result))
    await trio.testing.wait_all_tasks_blocked()
    assert (topic.retain, topic.slow_consumer) == ("always", "disconnect")
    assert (queue.persistent, topic.ttl_s) == ("header", 0)


async def test_all_parts_of_a_broker_share_the_groups(dial: Dial):
    settings, server = dial.security.settings, dial.server
    assert server.limits is settings.server
    for part in (server.inbox, server.admission, server._shared):
        assert part.limits is settings.server
    assert (server.codecs.limits, server.codecs.options) == (settings.frames, settings.protocol)
    assert server.codecs.limits is settings.frames
    assert server.codecs.options is settings.protocol
    assert server.authenticator.options is settings.security
    core = server.broker
    for floor in (
        core,
        core.destinations,
        core.stale,
        core.fan_out,
        core.bindings,
        core.subscriptions,
    ):
        assert floor.policies is settings.broker


# --- effects -------------------------------------------------------------------------


async def at_once(call: Callable[..., object], *args: object) -> object:
    await trio.lowlevel.checkpoint()
    return call(*args)


async def reload(dial: Dial, **values: object) -> None:
    """Reload options as the broker does at SIGHUP."""
    settings, new = dial.security.settings, Settings.of(**{**dial.options, **values})
    assert all(each.is_live for each in changes(settings, new))
    # Nothing in a thread: a mock clock would not wait for it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio.to_thread, "run_sync", at_once)
        await use_settings(settings, dial.security, dial.server, new, dial.security._read(new))
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("case", [each for each in LIMITS if each.options], ids=id_of)
async def test_a_limit_of_frames_and_of_a_session(dial: Dial, autojump_clock, case: Limit):
    before = await dial.connect()
    client = await dial.connect()
    await client.send_bytes(case.act(case.most + 1))
    assert (await client.receive()).command == "RECEIPT"
    await client.aclose()
    while len(dial.server.connections) > 1:  # noqa: ASYNC110
        await trio.sleep(0.1)
    await reload(dial, **case.options)
    # Existing content stays, such as a destination with a long name; so exceed the limit by 3.
    for client in (before, await dial.connect()):
        await client.send_bytes(case.act(case.most + 3))
        frame = await client.receive()
        assert (frame.command, frame["code"]) == ("ERROR", case.code)
        await client.expect_closed()
    await reload(dial, **{name: LIVE[name].default for name in case.options})
    client = await dial.connect()
    await client.send_bytes(case.act(case.most + 1))
    assert (await client.receive()).command == "RECEIPT"


@pytest.mark.parametrize(
    ("headers", "values"),
    [
        ({"content-length": "2000"}, {"max_body_bytes": 1000}),
        ({f"h{number}": "x" for number in range(9)}, {"max_headers": 5}),
        ({"h": "x" * 200}, {"max_header_line_bytes": 100}),
    ],
    ids=lambda value: next(iter(value)),
)
async def test_a_header_block_that_was_parsed_before_the_limit_fell(
    dial: Dial, headers: dict[str, str], values: dict[str, object]
):
    """Parsed blocks are remembered: a reload must have them forgotten."""
    client = await dial.connect()
    await client.publish("/t", b"x" * 2000, headers=headers)
    assert await client.fence() == []
    await reload(dial, **values)
    await client.publish("/t", b"x" * 2000, headers=headers)
    assert (await client.receive()).command == "ERROR"


async def test_heart_beats_of_new_sessions(dial: Dial, autojump_clock):
    offer = {"heart-beat": "200,100"}
    first = await (await dial.open()).connect("1.2", offer)
    assert first["heart-beat"] == "1000,1000"
    beats = {"heartbeat_send_ms": 3000, "heartbeat_expect_ms": 4000, "heartbeat_margin_s": 20.0}
    await reload(dial, heartbeat_tolerance=5.0, **beats)
    second = await (await dial.open()).connect("1.2", offer)
    assert second["heart-beat"] == "3000,4000"
    plans = [each.session.heartbeats for each in dial.server.connections]
    assert [(plan.send_every_s, plan.dead_after_s) for plan in plans] == [
        (1.0, 2.0),
        (3.0, 24.0),
    ]
    await reload(dial, heartbeat_tolerance=50.0, **beats)
    await dial.connect("1.2", offer)
    assert [*dial.server.connections][-1].session.heartbeats.dead_after_s == 200.0


async def test_reload_of_require_host_refuses_a_connect_without_host(dial: Dial):
    await (await dial.open()).send("CONNECT", {"accept-version": "1.2"})
    await dial.connect()
    await reload(dial, require_host=True)
    await refused(dial, {"host": None}, "header-missing")


async def test_reload_of_hosts_refuses_other_hosts(dial: Dial):
    await reload(dial, hosts="/,test")
    await refused(dial, {"host": "other"}, "unknown-host")
    await dial.connect()  # as "test"


async def test_reload_bounds_the_stale_queue(autojump_clock):
    async with open_dial(**QUIET, ttl_ms=1_000_000) as dial:
        client = await dial.connect()
        await client.publish("/t", b"1", b"2", b"3", receipt=True)
        stale = dial.server.broker.stale
        assert stale.size == 3
        await reload(dial, max_stale_queue_size=4)
        await client.publish("/t", b"4", b"5", receipt=True)
        assert (stale.size, stale.statistics.dropped) == (4, 1)
        await reload(dial, max_stale_queue_size=4, stale_overflow="drop-oldest")
        await client.publish("/t", b"6", receipt=True)
        # A run is thrown away as a whole: 1, 2 and 3 made room for 6.
        assert (stale.size, stale.statistics.dropped) == (2, 4)
        await reload(dial, max_stale_queue_bytes=stale.bytes)
        await client.publish("/t", b"7" * 1000, receipt=True)
        assert (stale.size, stale.statistics.dropped) == (2, 5)


async def test_reload_of_slow_consumer_holds_for_later_messages(autojump_clock):
    async with open_dial(**QUIET, max_outbox_bytes=4096, write_stall_s=LONG_S) as dial:
        sender = await dial.connect()
        await reload(dial, slow_consumer="drop-newest")
        narrow = await connect_narrow(dial)
        await narrow.subscribe("/t")
        for _ in range(5):
            await sender.publish("/t", b"x" * 2000, receipt=True)
        assert dial.server.broker.fan_out.drops.slow_consumer
        await reload(dial, slow_consumer="disconnect")
        await sender.publish("/t", b"x" * 2000, receipt=True)
        narrow.abort()
        await _ended(dial, "slow-consumer")


async def _ended(dial: Dial, reason: str) -> None:
    with trio.fail_after(LONG_S):
        while True:
            if any(count and each.text == reason for each, count in dial.server.ended.items()):
                return
            await trio.sleep(0.1)


async def test_reload_of_connection_limits_holds_for_new_connections(autojump_clock):
    async with open_dial(**QUIET) as dial:
        await dial.connect()
        await reload(dial, max_connections=1)
        await (await refused(dial, {}, "too-many-connections")).aclose()
        await reload(dial)
        await dial.connect()
        await reload(dial, max_opening_bytes=1024)
        await refused(dial, {"x": "y" * 2000}, "opening-too-large")


async def test_the_time_to_connect(dial: Dial, autojump_clock):
    await reload(dial, connect_timeout_s=2.0)
    client, began = await dial.open(), trio.current_time()
    await client.expect_error("connect-timeout")
    assert 2.0 <= trio.current_time() - began < 3.0


async def test_the_time_to_stop(dial: Dial, autojump_clock):
    client = await dial.connect()
    await client.send("BEGIN", {"transaction": "t"})  # it is busy
    await reload(dial, drain_s=20.0, shutdown_grace_s=1.0)
    began = trio.current_time()
    dial.handle.stop()
    await dial.ended.wait()
    assert 20.0 <= trio.current_time() - began < 22.0


async def test_live_option_shutdown_message(dial: Dial, autojump_clock):
    client = await dial.connect()
    await reload(dial, farewell="error")
    dial.handle.stop()
    await client.expect_error("shutting-down")


async def test_reload_bounds_the_input_queue(dial: Dial):
    inbox = dial.server.inbox
    inbox.frames, inbox.bytes = 2, 2000
    batch = _Batch()
    assert not inbox._is_full(batch)  # type: ignore[arg-type]
    await reload(dial, max_input_queue_size=2)
    assert inbox._is_full(batch)  # type: ignore[arg-type]
    await reload(dial, max_input_queue_bytes=2000)
    assert inbox._is_full(batch)  # type: ignore[arg-type]
    await reload(dial)
    assert not inbox._is_full(batch)  # type: ignore[arg-type]
    inbox.frames = inbox.bytes = 0


@attrs.frozen
class _Batch:
    frames: int = 1
    size: int = 1


async def test_web_pages_and_pings(autojump_clock):
    async with open_dial(WS_MEMORY, **QUIET) as dial:
        await dial.connect()
        page = [("Origin", "https://a.example")]
        pipe = WebSocketPipe(await dial.stream())
        with pytest.raises(Exception, match=r"403|RejectConnection|closed"):
            await pipe.shake_hands(headers=page)
        await reload(dial, allowed_origins="https://a.example")
        await WebSocketPipe(await dial.stream()).shake_hands(headers=page)
        await reload(dial, websocket_ping_s=7.0)
        await dial.connect()
        connection = [*dial.server.connections][-1]
        await trio.sleep(7.5)
        assert connection.deadlines._pinged_at


async def test_reload_of_users_and_rules_ends_unauthenticated_clients(dial: Dial, tmp_path: Path):
    users = save(tmp_path / "users", "ann:pass\n")
    acl = save(tmp_path / "acl.toml", "[[rule]]\nallow = 'receive'\nto = '**'\n")
    stranger = await dial.connect()
    await reload(dial, passwd_file=users)
    await stranger.expect_error("authentication-failed")
    await refused(dial, {}, "authentication-required")
    ann = await dial.connect("1.2", {"login": "ann", "passcode": "pass"})
    await ann.publish("/t", b"x", receipt=True)
    await reload(dial, passwd_file=users, acl_file=acl)
    await ann.publish("/t", b"x")
    assert (await ann.receive()).command == "ERROR"
    await reload(dial, passwd_file=users, anonymous="always")
    await dial.connect()
    await reload(dial, passwd_file=users, max_waiting_logins=1)
    turns = dial.server.authenticator._turns
    turns.busy = turns.slots  # all threads are taken
    await refused(dial, {"login": "ann", "passcode": "other"}, "too-many-attempts")
    turns.busy = 0
    await reload(dial, insecure=True)
    assert dial.server.authenticator.lets_anonymous(is_loopback=False)


async def refused(dial: Dial, headers: Mapping[str, str | None], code: str) -> Client:
    """Send a CONNECT that is refused; a header that is None is left out."""
    client = await dial.open()
    pairs = {"accept-version": "1.2", "host": "x", **headers}
    await client.send("CONNECT", {name: text for name, text in pairs.items() if text is not None})
    await client.expect_error(code)
    return client


async def test_reload_of_token_options_holds_for_new_logins(dial: Dial, tmp_path: Path):
    jwt = pytest.importorskip("jwt")
    secret = "a secret of thirty-two bytes, not less"
    claims = {"sub": "ann", "who": "bob", "exp": 4e9, "iss": "i", "aud": "a", "roles": ["x"]}
    token = {"Authorization": f"Bearer {jwt.encode(claims, secret, 'HS256')}"}
    key = save(tmp_path / "key", secret)
    values: dict[str, object] = {"token_key_file": key, "token_audience": "a"}
    await reload(dial, **values)
    await dial.connect("1.2", token)
    assert _last(dial) == ("ann", {"x"})
    for other in ({"token_issuer": "other"}, {"token_audience": "other"}):
        await reload(dial, **{**values, **other})
        await refused(dial, token, "authentication-failed")
    await reload(dial, **values, token_user_claim="who", token_roles_claim="none")
    await dial.connect("1.2", token)
    assert _last(dial) == ("bob", set())
    await reload(dial, **values, max_token_session_s=5.0)
    await dial.connect("1.2", token)
    last = [*dial.server.connections][-1]
    assert 4 < last.deadlines.expires_at - time.time() <= 5
    jwks = save(tmp_path / "jwks", '{"keys": [{"kty": "oct", "kid": "1", "k": "x"}]}')
    with pytest.raises(OptionError, match="jwks"):
        await reload(dial, **values, token_jwks_file=jwks)


def _last(dial: Dial) -> tuple[str, set[str]]:
    identity = [*dial.server.connections][-1].client.identity
    return identity.name, set(identity.roles)


async def test_live_option_certificate_identities():
    tls = {
        "tls_cert": authority().certificate,
        "tls_client_ca": authority().file,
        "tls_client_certificates": "optional",
    }
    async with open_dial(MEMORY, **QUIET, **tls) as dial:
        await dial.connect()
        assert not dial.server.authenticator.accounts.exist
        await reload(dial, tls_login="common-name")
        accounts = dial.server.authenticator.accounts
        identity = accounts.certified(("CN=ann",))
        assert identity is not None
        assert identity.name == "ann"


async def test_time_to_write_and_to_read_a_last_frame(autojump_clock):
    async with open_dial(**QUIET, write_stall_s=LONG_S, linger_s=LONG_S) as dial:
        await dial.connect()
        await reload(dial, write_stall_s=5.0, linger_s=3.0)
        client, began = await dial.connect(), trio.current_time()
        await client.send_bytes(b"NONSENSE\n\n\0")
        await _ended(dial, "protocol-error")
        assert 2.9 <= trio.current_time() - began < 4.5
        narrow = await connect_narrow(dial)
        await narrow.subscribe("/t")
        began = trio.current_time()
        await (await dial.connect()).publish("/t", b"x" * 1000, receipt=True)
        await _ended(dial, "write-stalled")
        assert 4.9 <= trio.current_time() - began < 12.0


def test_reload_of_journal_options_is_adopted_by_the_open_store(tmp_path: Path):
    settings = own(Settings.of(data_dir=str(tmp_path), segment_bytes=1 << 20))
    store = JournalStore(str(tmp_path), options=settings.journal)
    store.recover(lambda done, total: None)
    try:
        commit = store.append([Turn((Done((1,)),), is_urgent=False)], 0)
        assert (store.statistics().files, store.statistics().limit_bytes) == (1, 0)
        adopt(settings, Settings.of(segment_bytes=4096, max_store_bytes=1 << 30))
        for _ in range(500):
            commit = store.append([Turn((Done((1,)),), is_urgent=False)], commit)
        assert store.statistics().files > 1
        assert store.statistics().limit_bytes == 1 << 30
        assert settings.journal == JournalOptions(segment_bytes=4096, max_store_bytes=1 << 30)
    finally:
        store.close()


# Options tested where they are read, see above: these tests would need a remote peer, or more
# messages than are worth it here.
ELSEWHERE = {
    "max_connections_per_address",
    "max_backlog_bytes",
    "max_durables_per_user",  # it takes users: test_authorizer
    "max_schedules_per_user",  # so do these: test_quotas
    "max_share_per_user",
    "input_overflow",
    "token_cookie",
    "log_level",  # the command line's: test_cli_serve
}


def test_each_live_option_has_its_effect_shown_here():
    text = Path(__file__).read_text(encoding="utf-8")
    shown = {name for name in LIVE if f"{name}=" in text or f'"{name}":' in text}
    shown |= {name for case in LIMITS for name in case.options}
    assert LIVE.keys() - shown == ELSEWHERE
