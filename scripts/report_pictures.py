"""Make the pictures of the report and the notebook in docs/operate, from the sample of a day.

python scripts/report_pictures.py               into docs/operate
python scripts/report_pictures.py --out /tmp    elsewhere

Light, dark, and 400 pixels wide. It needs Chromium and the extra ``dev``. Look at the pictures
before you commit them.
"""

import argparse
import base64
import io
import os
import re
import sys
import tempfile
from datetime import timedelta
from html import escape
from pathlib import Path

from make_diag_sample import Row, day, write
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.chromium import Chromium, chromium_or_skip, running_chromium  # noqa: E402
from trio_stomp.spark import Thresholds  # noqa: E402
from trio_stomp.spark.running import NOTEBOOK_FILE, make_report  # noqa: E402

DAY, DAY_BEFORE = "2026-03-14", "2026-03-13"
LESS = 0.8
"""The factor of the counters of the invented day before."""

LOOKS = {"light": (1160, 1150), "dark": (1160, 1150), "narrow": (400, 1150)}
"""Width and height of each picture."""
NOTEBOOK_HEAD = '<!doctype html><meta name="viewport" content="width=device-width">'
NOTEBOOK_STYLE = """:root{color-scheme:light dark}body{max-width:1000px;margin:20px auto;
padding:0 16px;font:15px/1.5 system-ui,sans-serif;background:light-dark(#fff,#111)}
img{max-width:100%}pre{overflow:auto;font-size:13px}"""


def main(argv: list[str]) -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "operate")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        root = scratch / "diag"
        messages = day()
        write(root, map(earlier, messages))
        write(root, messages)
        pages = {"notebook": scratch / "notebook.html", "report": scratch / "report.html"}
        thresholds = Thresholds(memory_bytes=512 << 20, fds=1024)
        make_report(str(root), thresholds, html=pages["report"])
        pages["notebook"].write_text(notebook(root), encoding="utf-8")
        with running_chromium(chromium_or_skip(), scratch / "profile") as browser:
            for page, file in pages.items():
                for look in LOOKS:
                    picture = given.out / f"{page}-{look}.png"
                    take(browser, file.as_uri(), look, picture)
                    print(picture, picture.stat().st_size)


def earlier(row: Row) -> Row:
    """Return a message of the sample as if it had been a day before, and less had happened."""
    body = re.sub(
        r'("\w+_total": ?)(\d+)',
        lambda found: f"{found[1]}{int(LESS * int(found[2]))}",
        str(row["body"]).replace(DAY, DAY_BEFORE),
    )
    times = {name: row[name] - timedelta(days=1) for name in ("ts", "stored_at")}
    return row | times | {"body": body, "epoch": "earlier"}


def notebook(root: Path) -> str:
    """Return the executed notebook as a page: its words and pictures, without the code."""
    import nbformat
    from nbclient import NotebookClient

    os.environ |= {"DIAG_ROOT": str(root), "DIAG_DAY": DAY, "PYTHONPATH": str(ROOT)}
    made = nbformat.read(NOTEBOOK_FILE, 4)  # type: ignore[no-untyped-call]
    NotebookClient(made, timeout=1200, kernel_name="python3").execute()
    parts = []
    for cell in made.cells:
        if cell.cell_type == "markdown":
            first, *rest = cell.source.splitlines()
            level = len(first) - len(first.lstrip("#"))
            parts.append(f"<h{level}>{escape(first.strip('# '))}</h{level}>")
            words = [re.sub(r"`(.+?)`", r"<code>\1</code>", escape(line)) for line in rest if line]
            parts += [f"<p>{line}</p>" for line in words]
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                continue  # warnings of the JVM
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f'<img alt="" src="data:image/png;base64,{data["image/png"]}">')
            elif "text" in output or "text/plain" in data:
                text = output.get("text") or data["text/plain"]
                parts.append(f"<pre>{escape(text)}</pre>")
    return f"{NOTEBOOK_HEAD}<style>{NOTEBOOK_STYLE}</style>{''.join(parts)}"


def take(browser: Chromium, url: str, look: str, file: Path) -> None:
    """Take a picture of the top of a page, with few enough colours to be small."""
    width, height = LOOKS[look]
    with browser.page(url, width, height) as page:
        page.prefer("dark" if look == "dark" else "light")
        data = base64.b64decode(page.call("Page.captureScreenshot", format="png")["data"])
    image = Image.open(io.BytesIO(data)).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
