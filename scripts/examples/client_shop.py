"""Run a small application with ``trio_stomp.client``: orders, a worker, and requests for prices.

It runs a broker in memory; ``--url`` names another one.

python scripts/examples/client_shop.py [--url stomp://localhost:61613]
"""

import argparse
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import trio
from trio.testing import memory_stream_pair

import trio_stomp
from trio_stomp.client import Client, Connector, ReconnectPolicy, Subscription, open_client

ORDERS = "/queue/orders"
INVOICES = "/queue/invoices"
PRICES = "/queue/prices"
PRICE_LIST = {"tea": 3, "cake": 5}


class InMemory(trio.abc.Listener[trio.abc.Stream]):
    """A listener that accepts the connections of ``dial``."""

    def __init__(self) -> None:
        self._arrivals, self._accepted = trio.open_memory_channel[trio.abc.Stream](16)

    async def dial(self) -> trio.abc.Stream:
        """Return the client's end of a new connection."""
        ours, theirs = memory_stream_pair()
        await self._arrivals.send(theirs)
        return ours

    async def accept(self) -> trio.abc.Stream:
        """Return the broker's end of the next one."""
        return await self._accepted.receive()

    async def aclose(self) -> None:
        """Stop accepting."""
        await self._accepted.aclose()


@asynccontextmanager
async def broker() -> AsyncGenerator[Connector]:
    """Run a broker in memory. Yield a connector to it."""
    async with trio.open_nursery() as nursery:
        listener = InMemory()
        handle = await nursery.start(partial(trio_stomp.serve, listeners=[listener]))
        yield listener.dial
        handle.stop()


async def answer_prices(client: Client) -> None:
    """Answer requests for prices, until cancelled."""
    async with client.subscribe(PRICES) as questions:
        async for question in questions:
            price = PRICE_LIST.get(question.text, 0)
            pairs = {"correlation-id": question.headers["correlation-id"]}
            await client.send(question.headers["reply-to"], str(price), headers=pairs)


async def bill(client: Client, orders: Subscription) -> None:
    """Create an invoice for each order. Both are one transaction, or the order is redelivered."""
    async for order in orders:
        item = order.text
        price = await client.request(PRICES, item, timeout_s=5)
        async with client.transaction() as transaction:
            await transaction.send(INVOICES, f"{item}: {price.text}", persistent=True)
            await transaction.ack(order)


async def shop(client: Client) -> list[str]:
    """Order, and wait for the invoices."""
    async with (
        client.subscribe(ORDERS, ack="client-individual", prefetch=1) as orders,
        client.subscribe(INVOICES, ack="client-individual") as invoices,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(answer_prices, client)
        nursery.start_soon(bill, client, orders)
        for item in ("tea", "cake"):
            receipt = await client.send(ORDERS, item, persistent=True)
            print(f"ordered {item}, kept in: {receipt.stored}")
        billed: list[str] = []
        async for invoice in invoices:
            async with invoice:
                billed.append(invoice.text)
                print("invoice for", invoice.text)
            if len(billed) == len(PRICE_LIST):
                break
        nursery.cancel_scope.cancel()
    return billed


async def main(url: str | None) -> None:
    """Run the shop once."""
    policy = ReconnectPolicy(max_delay_s=5.0, max_attempts=10)
    if url is not None:
        async with open_client(url, reconnect=policy) as client:
            await shop(client)
        return
    async with broker() as connect, open_client(connect, reconnect=policy) as client:
        await shop(client)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="of a broker that runs")
    trio.run(main, parser.parse_args().url)
