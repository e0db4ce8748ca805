"""A real broker inside your tests: in the same Trio loop, over memory, with a clock that you turn.

    async def test_orders(stomp_broker, autojump_clock):
        async with stomp_broker.client() as client:
            ...

``pip install 'trio-stomp[testing]'`` brings pytest-trio; the fixtures are there by themselves
(docs/testing.md). Without pytest, use ``open_test_broker``.
"""

from trio_stomp.testing._broker import TestBroker as TestBroker
from trio_stomp.testing._broker import open_test_broker as open_test_broker
from trio_stomp.testing._links import Faults as Faults
from trio_stomp.testing._links import Link as Link
from trio_stomp.testing._threaded import ThreadedBroker as ThreadedBroker
from trio_stomp.testing._threaded import threaded_broker as threaded_broker
