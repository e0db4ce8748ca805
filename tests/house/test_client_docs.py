"""The page and the sample applications run as they stand."""

import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import trio

import trio_stomp.client
from tests.support.client_fakes import open_broker
from tests.support.fakes import TCP
from trio_stomp.client import ClientError, open_client

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "use" / "client.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SAID = ["stored: memory\ntea large\n", "subscribers: 0\n", "42\n", ""]


@pytest.mark.parametrize(("example", "expected"), list(zip(EXAMPLES, SAID, strict=True)))
async def test_examples(example: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"trio": trio, "open_client": open_client}
    exec(compile(textwrap.dedent(example), "docs/use/client.md", "exec"), names)
    with trio.fail_after(30):
        async with open_broker(TCP) as dial:
            url = f"stomp://{dial.handle.addresses[0]}"
            await names["main"](url)  # type: ignore[operator]
            async with open_client(url) as client, client.subscribe("/queue/out") as left:
                if "/queue/out" in example:
                    assert (await left.receive()).text == "result"
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


def test_the_speed_is_measured() -> None:
    script = ROOT / "scripts" / "examples" / "client_speed.py"
    command = [sys.executable, str(script), "--messages", "2000", "--beside"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert len(done.stdout.splitlines()) == 6
    assert "stomp.py: received" in done.stdout
