"""/varz, /connz, /subsz and /queuez: NATS's paging over the records of the DIAG topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes import MEMORY, WS_MEMORY, Dial, open_dial, until
from tests.support.site import QUIET, add_all, ask, ask_over_wire, empty_queues
from tests.support.site import dial as dial
from trio_stomp import CloseReason
from trio_stomp.base import schema as schema
from trio_stomp.diag import Reporter
from trio_stomp.transport import HttpError, HttpRequest
from trio_stomp.web._query import MAX_PARAMETERS, Query
from trio_stomp.web.declared import Number, Word
from trio_stomp.web.management.requests import (
    LIMIT,
    OFFSET,
)

FEW = Number("limit", "some", default=7, least=1, most=9)
SORT = Word("sort", "an order", choices=("a", "b"))
LISTS = ("/connz", "/subsz", "/queuez")
PAGES = ("/varz", *LISTS)


def names_of(table: schema.Table) -> set[str]:
    return {field.name for field in table.fields}


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("/connz?limt=5", "unknown parameter 'limt'; did you mean limit?"),
        ("/subsz?ofset=1", "unknown parameter 'ofset'; did you mean offset?"),
        (
            "/subsz?zzz=1",
            "unknown parameter 'zzz'; known are session, state, copies, limit, offset",
        ),
        ("/varz?limit=5", "unknown parameter 'limit'; this page has none"),
        ("/connz?limit=5&limit=6", "the parameter limit is given twice; leave one out"),
        ("/connz?limit=0", "limit is '0', but must be a whole number from 1 to 1000"),
        ("/connz?limit=1001", "limit is '1001', but must be a whole number from 1 to 1000"),
        ("/connz?limit=-1", "limit is '-1', but must be a whole number from 1 to 1000"),
        ("/connz?limit=", "limit is '', but must be a whole number from 1 to 1000"),
        ("/connz?limit=1_0", "limit is '1_0', but must be a whole number from 1 to 1000"),
        ("/connz?limit=%20", "limit is ' ', but must be a whole number from 1 to 1000"),
        ("/connz?limit=%D9%A3", "limit is '\u0663', but must be a whole number from 1 to 1000"),
        ("/connz?offset=99999999", "offset is '99999999', but must be a whole number from 0 to"),
        ("/connz?offset=" + "9" * 5000, f"offset is '{'9' * 40}', but must be a whole number"),
        ("/connz?sort=byte_in", "sort is 'byte_in', but must be one of start, "),
        ("/connz?sort=byte_in", "; did you mean bytes_in?"),
        ("/connz?state=opn", "but must be one of any, opening, open, closed; did you mean open?"),
        ("/connz?sort=%01%0d%0aX:%20y", r"sort is '\x01\r\nX: y', but must be one of"),
        ("/connz?name=a%00", "name has a NUL"),
        ("/connz?name=%FF", "the query is not UTF-8"),
        ("/queuez?state=parked&sort=bytes", "sort is 'bytes', but what is parked is sorted by"),
        ("/queuez?" + "a=1&" * 20, f"the query has more than {MAX_PARAMETERS} parameters"),
    ],
)
async def test_wrong_query_is_answered_with_the_remedy(dial: Dial, target: str, text: str) -> None:
    reply = ask(dial, target)
    assert reply.status == 400
    assert reply.headers["content-type"].startswith("text/plain")
    assert text in reply.text
    assert reply.text.count("\n") == 1
    head = ask(dial, target, "HEAD")
    assert (head.status, head.body) == (400, b"")
    assert head.headers["content-length"] == reply.headers["content-length"]


@pytest.mark.parametrize("page", PAGES)
async def test_a_token_in_the_query_is_no_parameter_and_is_never_quoted(
    dial: Dial, page: str
) -> None:
    assert ask(dial, f"{page}?access_token=geheim").status == 200
    assert "geheim" not in ask(dial, f"{page}?acess_token=geheim").text
    assert "geheim" not in ask(dial, f"{page}?access_token=geheim&access_token=geheim").text


@given(st.text(max_size=200))
def test_no_query_does_more_than_be_refused(text: str) -> None:
    error = refusal(text)
    if error is not None:
        assert error.status == 400
        assert len(error.text) < 300
        assert error.text.isprintable()


def refusal(text: str) -> HttpError | None:
    """Return the reason why a page refuses a query."""
    try:
        query = Query.of(HttpRequest("GET", f"/connz?{text}", ()), (FEW, SORT))
        assert 1 <= query.number(FEW) <= 9
        assert query.word(SORT) in SORT.choices
    except HttpError as error:
        return error
    return None


# --- paging ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
async def test_head_tells_the_length_only(dial: Dial, page: str) -> None:
    assert ask(dial, page, "HEAD").body == b""
    assert (await ask_over_wire(await dial.stream(), page)).status == 200
    assert (await ask_over_wire(await dial.stream(), page, "HEAD")).body == b""
    await until(lambda: dial.server.ended[CloseReason.HTTP_ANSWERED] == 2)


async def test_connections_come_in_pages_of_their_order(dial: Dial) -> None:
    clients = [await dial.connect() for _ in range(7)]
    sessions = [each.client.session_id for each in dial.server.connections]
    reported: list[str] = []
    for offset in range(0, 9, 3):
        page = ask(dial, f"/connz?limit=3&offset={offset}").json
        assert (page["total"], page["limit"], page["offset"]) == (7, 3, offset)
        assert page["count"] == len(page["connections"])
        reported += [each["session_id"] for each in page["connections"]]
    assert reported == sessions
    assert ask(dial, "/connz?offset=7").json["connections"] == []
    assert ask(dial, f"/connz?offset={OFFSET.most}&limit={LIMIT.most}").json["count"] == 0
    for number, client in enumerate(clients):
        await client.publish("/topic/t", *[b"x"] * (number * 3), receipt=bool(number))
    page = ask(dial, "/connz?sort=frames_in&limit=2").json
    assert [each["session_id"] for each in page["connections"]] == [sessions[6], sessions[5]]
    second = ask(dial, "/connz?sort=msgs_from&limit=2&offset=2").json
    assert [each["session_id"] for each in second["connections"]] == [sessions[4], sessions[3]]


def orders(dial: Dial, page: str) -> list[str]:
    """Return the orders of a page, as it tells who asks for another one."""
    _, told, words = ask(dial, f"{page}?sort=0").text.strip().partition("must be one of ")
    assert told
    return words.partition(";")[0].split(", ")


async def test_every_order_has_everybody_once(dial: Dial) -> None:
    for number in range(5):
        client = await dial.connect()
        for place in range(number):
            await client.subscribe(f"/topic/{place}", f"{place}")
    known = orders(dial, "/connz")
    assert len(known) == 16
    for order in known:
        whole = ask(dial, f"/connz?sort={order}").json["connections"]
        parts = [
            record
            for offset in range(5)
            for record in ask(dial, f"/connz?sort={order}&limit=1&offset={offset}").json[
                "connections"
            ]
        ]
        key = [each["session_id"] for each in whole]
        assert len(set(key)) == 5
        assert [each["session_id"] for each in parts] == key
        figures = {
            "subs": "subscriptions",
            "bytes_to": "bytes_out_total",
            "bytes_from": "bytes_in_total",
            "pending": "pending_bytes",
        }
        column = [each[figures.get(order, "frames_in_total")] for each in whole]
        if order in figures:
            assert column == sorted(column, reverse=True)


@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
async def test_connection_is_shown_as_in_diag(transport: str) -> None:
    async with open_dial(transport, **QUIET) as dial:
        await dial.connect()
        await dial.stream()
        add_all(dial)
        await until(lambda: len(dial.server.connections) == 2)
        page = ask(dial, "/connz?state=open").json
        (record,) = page["connections"]
        assert page["total"] == 1
        wanted = names_of(schema.CONNECTION) | {"pending_bytes"}
        if transport == WS_MEMORY:
            wanted |= names_of(schema.WS)
        assert set(record) == wanted
        assert record["stomp_version"] == "1.2"
        other = ask(dial, "/connz?state=opening").json
        assert [each["state"] for each in other["connections"]] == ["opening"]
        assert ask(dial, "/connz?state=closed").json["total"] == 0


async def test_subscriptions_come_in_pages(dial: Dial) -> None:
    for number in range(4):
        client = await dial.connect()
        for place in range(number):
            await client.subscribe(f"/topic/{number}.{place}", f"{place}")
    last = await dial.connect()
    durable = {"durable": "true", "client-id": "c", "activemq.subscriptionName": "n"}
    await last.subscribe("/topic/*", "w", {"selector": "a = 1"})
    await last.subscribe("/queue/q", "q", {"ack": "client", "prefetch-count": "7"} | durable)
    everything = ask(dial, "/subsz").json
    assert everything["total"] == everything["count"] == 8
    assert everything["wildcards"] == 1
    for offset in range(10):
        part = ask(dial, f"/subsz?limit=3&offset={offset}").json
        assert part["subscriptions"] == everything["subscriptions"][offset : offset + 3]
    wild, queue = everything["subscriptions"][-2:]
    assert (wild["wildcard"], wild["selector"], wild["ack"]) == (True, True, "auto")
    assert wild["selector_text"] == "a = 1"
    assert (queue["wildcard"], queue["ack"], queue["unacked"]) == (False, "client", 0)
    mine = ask(dial, f"/subsz?session={queue['session_id']}").json
    assert [each["subscription_id"] for each in mine["subscriptions"]] == ["w", "q"]
    assert mine["total"] == 2
    assert ask(dial, "/subsz?session=nobody").json["total"] == 0
    assert ask(dial, f"/subsz?session={queue['session_id']}&offset=1").json["count"] == 1


async def test_offline_durable_subscriptions_are_listed() -> None:
    def named(name: str) -> dict[str, str]:
        return {"durable-subscription-name": name, "ack": "client"}

    async with open_dial(**QUIET) as dial:
        mine = await dial.connect("1.2", {"client-id": "me", "login": "me"})
        await mine.subscribe("/topic/a,/topic/b.*", "1", named("own") | {"selector": "n = 1"})
        await mine.disconnect()
        for destination in ("/topic/x", "/topic/y"):
            maker = await dial.connect()
            await maker.subscribe(destination, "1", named("shared"))
            await maker.disconnect()
        here = [await dial.connect() for _ in range(2)]
        for client in here:
            await client.subscribe("/topic/x", "s", named("shared"))
        await here[0].subscribe("/topic/plain", "p", {"ack": "client"})
        publisher = await dial.connect()
        await publisher.publish("/topic/y", b"1", b"2", receipt=True)
        await publisher.publish("/topic/x", b"3", receipt=True)
        await publisher.publish("/topic/b.c", b"4", receipt=True, headers={"n": "1"})
        add_all(dial)

        page = ask(dial, "/subsz?state=durable").json
        assert (page["total"], page["count"], page["state"]) == (3, 3, "durable")
        own, first, second = page["subscriptions"]
        plain = ask(dial, "/subsz?state=connected&limit=1").json["subscriptions"][0]
        assert set(own) == set(plain)
        pairs = [
            (each["name"], each["client_id"], each["destination"], each["state"], each["waiting"])
            for each in page["subscriptions"]
        ]
        assert pairs == [
            ("own", "me", "/topic/a,/topic/b.*", "away", 1),
            ("shared", "", "/topic/x", "connected", 0),
            ("shared", "", "/topic/y", "away", 2),
        ]
        assert (own["wildcard"], own["selector_text"], own["ack"], own["prefetch"]) == (
            *(True, "n = 1", None, 0),
        )
        assert (first["consumers"], first["unacked"], first["prefetch"]) == (2, 1, 200)
        assert (first["session_id"], first["subscription_id"]) == ("", None)  # one of the two
        assert second["consumers"] == 0

        for state, count in (("any", 5), ("connected", 3), ("away", 2), ("durable", 3)):
            whole = ask(dial, f"/subsz?state={state}").json
            assert whole["total"] == whole["count"] == len(whole["subscriptions"]) == count
            for offset in range(count + 2):
                part = ask(dial, f"/subsz?state={state}&limit=2&offset={offset}").json
                assert part["subscriptions"] == whole["subscriptions"][offset : offset + 2]
                assert part["total"] == count
        everything = ask(dial, "/subsz").json["subscriptions"]
        assert [each["state"] for each in everything] == ["connected"] * 3 + ["away"] * 2
        assert [each["name"] for each in everything] == ["shared", None, "shared", "own", "shared"]

        await here[1].disconnect()
        add_all(dial)
        first = ask(dial, "/subsz?state=durable").json["subscriptions"][1]
        session = everything[0]["session_id"]
        assert (first["session_id"], first["subscription_id"]) == (session, "s")
        assert (first["ack"], first["consumers"]) == ("client", 1)
        mine_only = ask(dial, f"/subsz?session={session}").json
        assert [each["state"] for each in mine_only["subscriptions"]] == ["connected"] * 2
        assert mine_only["total"] == 2
        for state in ("away", "durable"):
            refused = ask(dial, f"/subsz?session={session}&state={state}")
            assert refused.status == 400
            assert f"no subscriptions of state {state}" in refused.text
        bindings = dial.server.broker.bindings
        for binding in list(bindings.durables):
            bindings.end_durable(binding, 0.0)


async def test_queues_come_fullest_first() -> None:
    async with open_dial(ttl_ms=60_000, **QUIET) as dial:
        client = await dial.connect()
        for number in range(5):
            await client.publish(f"/queue/{number}", *[b"x"] * (number + 1), receipt=True)
        await client.subscribe("/queue/idle", "1")
        await client.publish("/topic/late", b"y", b"z")
        await client.publish("/topic/later", b"y", receipt=True)
        add_all(dial)
        page = ask(dial, "/queuez?limit=2").json
        assert page["total"] == 6
        assert [each["destination"] for each in page["queues"]] == ["/queue/4", "/queue/3"]
        assert page["input"]["destination"] == "input"
        assert set(page["input"]) == names_of(schema.QUEUE)
        assert set(page["queues"][0]) == names_of(schema.QUEUE) | {
            *("consumers", "paused", "declared", "dead_letters")
        }
        assert ask(dial, "/queuez?state=idle").json["queues"][0]["destination"] == "/queue/idle"
        assert ask(dial, "/queuez?state=waiting").json["total"] == 5
        assert ask(dial, "/queuez?offset=6").json["queues"] == []
        assert ask(dial, "/queuez?sort=consumers").json["queues"][0]["destination"] == "/queue/idle"
        for order in orders(dial, "/queuez"):
            assert ask(dial, f"/queuez?sort={order}").json["count"] == 6
        parked = ask(dial, "/queuez?state=parked&limit=1").json
        assert parked["total"] == 2
        assert [each["destination"] for each in parked["queues"]] == ["/topic/late"]
        rest = ask(dial, "/queuez?state=parked&limit=1&offset=1").json
        assert [each["stale_depth"] for each in rest["queues"]] == [1]
        empty_queues(dial)


async def test_nothing_but_ascii_comes_out_and_hostile_names_survive(dial: Dial) -> None:
    name = '/queue/\u2028</script>"\\\x7f\U0001f4a5'
    client = await dial.connect("1.2", {"login": name})
    await client.subscribe(name, name)
    assert ask(dial, "/queuez").json["queues"][0]["destination"] == name
    record = ask(dial, "/subsz").json["subscriptions"][0]
    assert (record["destination"], record["subscription_id"], record["user"]) == (name,) * 3
    assert ask(dial, "/connz").json["connections"][0]["user"] == name


# --- /varz ----------------------------------------------------------------------------------------


async def test_largest_users_of_shared_resources(dial: Dial) -> None:
    await dial.connect()
    for number in range(11):
        dial.server.broker.quotas.of_user(f"user-{number}").kept_bytes = number
    record = ask(dial, "/varz").json["quotas"]
    assert [each["owner"] for each in record] == [f"user-{number}" for number in range(10, 0, -1)]
    assert record[0] == {
        "owner": "user-10",
        "kind": "user",
        "kept_bytes": 10,
        "tables_bytes": 0,
        "stored_bytes": 0,
        "destinations": 0,
        "scheduled": 0,
        "refused_total": 0,
    }


async def test_the_process_and_its_totals(dial: Dial) -> None:
    client = await dial.connect()
    await client.subscribe("/topic/t")
    await client.publish("/topic/t", b"x", b"y", receipt=True)
    gone = await dial.connect()
    await gone.disconnect()
    await until(lambda: len(dial.server.connections) == 1)
    record = ask(dial, "/varz").json
    assert set(record["process"]) == names_of(schema.PROCESS)
    assert set(record["session"]) == names_of(schema.SESSION)
    assert set(record["stale"]) == names_of(schema.STALE)
    assert record["session"]["stomp_connected"] == 1
    assert record["process"]["uptime_s"] >= 0
    assert record["unready"] == ""
    assert record["messages"]["received_total"] == record["messages"]["delivered_total"] == 2
    assert record["connections"]["accepted_total"] == 2
    assert record["connections"]["now"] == 1
    assert record["connections"]["closed_total"]["client-disconnect"] == 1
    assert record["connections"]["opened_total"] == {"tcp": 2}
    assert record["logins"]["anonymous_total"] == 2
    assert record["memory"]["limit_bytes"] == dial.server.memory.limit_bytes
    assert record["quotas"] == []  # of who is on this machine and did not log in
    assert record["quota_refusals_total"] == 0
    diagnostics = dial.server.diagnostics
    assert isinstance(diagnostics, Reporter)
    assert record["boot"] == diagnostics.stream.boot
    assert record["broker_id"] == diagnostics.stream.broker_id
