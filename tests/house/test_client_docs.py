"""The page and the sample applications run as they stand."""

import asyncio
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_stomp.client
from trio_stomp.client import ClientError, open_client
from trio_stomp.testing import threaded_broker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "use" / "client.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SAID = ["stored: memory\ntea large\n", "subscribers: 0\n", "42\n", ""]


@pytest.mark.parametrize("library", ["trio", "asyncio"])
@pytest.mark.parametrize(("example", "expected"), list(zip(EXAMPLES, SAID, strict=True)))
def test_examples(
    example: str, expected: str, library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "trio." in example and library == "asyncio":
        return  # it shows a nursery
    names: dict[str, Any] = {"trio": trio, "open_client": open_client}
    exec(compile(textwrap.dedent(example), "docs/use/client.md", "exec"), names)

    async def main(url: str) -> None:
        await names["main"](url)
        async with open_client(url) as client, client.subscribe("/queue/out") as left:
            if "/queue/out" in example:
                assert (await left.receive()).text == "result"

    with threaded_broker() as broker:
        if library == "trio":
            trio.run(main, broker.url)
        else:
            asyncio.run(asyncio.wait_for(main(broker.url), 30))
    assert capsys.readouterr().out == expected


def test_every_error_is_documented() -> None:
    errors = {
        name
        for name, each in vars(trio_stomp.client).items()
        if isinstance(each, type) and issubclass(each, ClientError)
    }
    assert len(errors) > 8
    assert sorted(name for name in errors if f"`{name}`" not in PAGE) == []


def test_the_shop_sells(capsys: pytest.CaptureFixture[str]) -> None:
    shop = runpy.run_path(str(ROOT / "scripts" / "examples" / "client_shop.py"))
    trio.run(shop["main"], None)
    output = capsys.readouterr().out
    assert "ordered tea, kept in: memory" in output
    assert output.splitlines()[-1] == "invoice for cake: 5"
    assert "invoice for tea: 3" in output


@pytest.mark.parametrize("library", [[], ["--asyncio"]], ids=["trio", "asyncio"])
def test_the_speed_is_measured(library: list[str]) -> None:
    script = ROOT / "scripts" / "examples" / "client_speed.py"
    command = [sys.executable, str(script), "--messages", "2000", "--beside", *library]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert len(done.stdout.splitlines()) == 6
    assert "stomp.py: received" in done.stdout
