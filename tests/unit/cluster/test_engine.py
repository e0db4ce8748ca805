"""A node checks the version of the servers before it uses them."""

import pytest
import trio

from tests.support.nats import scripted_server
from trio_stomp.base import OptionError
from trio_stomp.cluster import ClusterNames, open_engine
from trio_stomp.nats import NatsOptions, open_client


@pytest.mark.parametrize("version", ["2.9.25", "9\u00b2", "", "2", "x.y"])
async def test_a_server_of_an_old_or_strange_version_is_refused(version: str) -> None:
    async with (
        scripted_server() as server,
        open_client(NatsOptions([server.address])) as client,
        trio.open_nursery() as tasks,
    ):

        async def serve() -> None:
            await (await server.session()).welcome(version=version)

        tasks.start_soon(serve)
        with pytest.raises(OptionError, match=r"a cluster needs 2\.12 or newer"):
            await open_engine(client, ClusterNames("c"), 1, 5.0)
