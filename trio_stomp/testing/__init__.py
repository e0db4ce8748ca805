"""A real broker inside your tests: in the same Trio loop, over memory, with a controlled clock.

    async def test_orders(stomp_broker, autojump_clock):
        async with stomp_broker.client() as client:
            ...

``pip install 'trio-stomp[testing]'`` installs pytest-trio; pytest finds the fixtures itself
(docs/use/testing.md). Without pytest, use ``open_test_broker``; for clients that do not use Trio,
``threaded_broker``.
"""

from typing import TYPE_CHECKING

from trio_stomp._lazy import lazily

if TYPE_CHECKING:
    from trio_stomp.testing._broker import TestBroker as TestBroker
    from trio_stomp.testing._broker import open_test_broker as open_test_broker
    from trio_stomp.testing._links import Faults as Faults
    from trio_stomp.testing._links import Link as Link
    from trio_stomp.testing._threaded import ThreadedBroker as ThreadedBroker
    from trio_stomp.testing._threaded import threaded_broker as threaded_broker
else:
    # Looked up when it is used: pytest imports the plugin of this package at its very start, even
    # where no test uses it, and before coverage counts lines.
    _HOMES = {
        "_broker": "TestBroker open_test_broker",
        "_links": "Faults Link",
        "_threaded": "ThreadedBroker threaded_broker",
    }
    __getattr__, __dir__ = lazily(__name__, _HOMES)
