"""trio_stomp.testing: the fixtures in another project."""

import pytest

from tests.support.testing_links import ARGUMENTS

pytest_plugins = ["pytester"]

SUITE = """
import pytest
import trio

pytestmark = pytest.mark.stomp_broker(ttl_ms=1000, max_headers=100)

@pytest.mark.trio
@pytest.mark.stomp_broker(ttl_ms=5000)
async def test_ttl(stomp_broker, autojump_clock):
    async with stomp_broker.client() as client:
        await client.send("/topic/late", "kept")
        await trio.sleep(4)
        async with client.subscribe("/topic/late") as messages:
            assert (await messages.receive()).text == "kept"

@pytest.mark.trio
async def test_ttl_of_the_module(stomp_broker, autojump_clock):
    async with stomp_broker.client() as client:
        await client.send("/topic/late", "gone")
        await trio.sleep(4)
        async with client.subscribe("/topic/late") as messages:
            await client.send("/topic/late", "new")
            assert (await messages.receive()).text == "new"

def test_port(stomp_broker_port):
    import socket
    with socket.create_connection((stomp_broker_port.host, stomp_broker_port.port)) as peer:
        peer.sendall(b"CONNECT\\naccept-version:1.2\\nhost:x\\n\\n\\0")
        assert peer.recv(9) == b"CONNECTED"
"""


@pytest.mark.parametrize("mode", ["false", "true"])
def test_the_fixtures_work_with_and_without_trio_mode(pytester: pytest.Pytester, mode: str) -> None:
    pytester.makeini(f"[pytest]\ntrio_mode = {mode}\naddopts = --strict-markers\n")
    pytester.makepyfile(SUITE)
    pytester.runpytest_inprocess(*ARGUMENTS).assert_outcomes(passed=3)


def test_a_marker_takes_names_only(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.stomp_broker({'ttl_ms': 1})\n"
        "def test_port(stomp_broker_port): pass\n"
        "@pytest.mark.stomp_broker(ttl=1)\n"
        "def test_option(stomp_broker_port): pass\n"
    )
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        ["*stomp_broker takes options by name, as in stomp_broker(ttl_ms=5000), not {'ttl_ms': 1}"]
    )
    result.stdout.fnmatch_lines(["*OptionError*ttl*"])


def test_sync_test_gets_an_error_that_names_trio(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(stomp_broker): pass")
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*Trio fixtures can only be used by Trio tests"])


def test_without_pytest_trio_the_fixture_names_the_package(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from trio_stomp.testing import pytest_plugin

        async def broker(request):
            yield

        found = pytest_plugin.find_spec
        pytest_plugin.find_spec = lambda name: None
        try:
            stomp_broker = pytest_plugin.trio_fixture(broker)
        finally:
            pytest_plugin.find_spec = found

        def test_it(stomp_broker):
            pass
        """
    )
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*UsageError: broker needs pytest-trio: pip install 'trio-stomp?testing?'"]
    )


def test_the_plugin_imports_no_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\n"
        "def test_it():\n"
        "    assert 'trio_stomp.testing.pytest_plugin' in sys.modules\n"
        "    assert 'trio_stomp.broker' not in sys.modules\n"
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=1)
