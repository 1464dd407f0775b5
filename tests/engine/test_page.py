"""The page of the report in a real browser: it is drawn, in light and dark, wide and narrow, and asks for nothing."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from support.drift_log import write_drift
from support.wide_log import write_wide
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.report.build_report import build_report
from widen.report.html_page import render_page
from widen.report.text_format import Samples, mask_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
PAPER = {"light": (246, 245, 241), "dark": (18, 21, 25)}
THEMES = {"light": "1", "dark": "0"}

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium (Debian: apt-get install chromium)")


def pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """The width, the height and the rows of a picture of 8 bits a channel, without interlacing."""
    at, data, head = 8, b"", b""
    while at < len(png):
        (size,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        content = png[at + 8 : at + 8 + size]
        head, data = (content, data) if kind == b"IHDR" else (head, data + content * (kind == b"IDAT"))
        at += size + 12
    width, height, depth, colour, *_ = struct.unpack(">IIBBBBB", head)
    assert (depth, colour in (2, 6)) == (8, True)
    step = 3 if colour == 2 else 4
    return width, height, _unfiltered(zlib.decompress(data), width * step, step)


def _unfiltered(raw: bytes, length: int, step: int) -> list[bytes]:
    rows, above = [], bytes(length)
    for start in range(0, len(raw), length + 1):
        kind, line = raw[start], bytearray(raw[start + 1 : start + 1 + length])
        for at in range(length):
            left, up = line[at - step] if at >= step else 0, above[at]
            corner = above[at - step] if at >= step else 0
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda value: abs(guess - value))
            line[at] = (line[at] + (0, left, up, (left + up) // 2, nearest)[kind]) & 255
        above = bytes(line)
        rows.append(above)
    return rows


def write_page(folder: Path, write: Callable[[Path], Path] = write_drift) -> Path:
    report = build_report(open_snapshot(LogStore(str(write(folder / "orders")))))
    place = folder / "report.html"
    place.write_text(render_page(mask_report(report, Samples.MASKED)), encoding="utf-8")
    return place


def browse(folder: Path, place: Path, *flags: str) -> str:
    """Open a page in the browser and return what it writes."""
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, place.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, timeout=600, text=True).stdout


@pytest.mark.parametrize(("theme", "width"), [("light", 1000), ("dark", 420)])
def test_the_page_is_drawn(tmp_path: Path, theme: str, width: int) -> None:
    place, picture = write_page(tmp_path), tmp_path / "report.png"
    scheme = f"--blink-settings=preferredColorScheme={THEMES[theme]}"
    browse(tmp_path, place, scheme, f"--window-size={width},700", f"--screenshot={picture}")

    found_width, height, rows = pixels(picture.read_bytes())
    assert (found_width, height) == (width, 700)
    step = len(rows[0]) // width
    colours = {row[at : at + 3] for row in rows for at in range(0, len(row), step)}
    assert tuple(rows[2][:3]) == PAPER[theme]
    assert len(colours) > 50, "text and charts were drawn"


def test_the_policy_lets_the_script_and_the_style_of_the_page_run(tmp_path: Path) -> None:
    place = write_page(tmp_path)
    assert '<html lang="en" class="js">' in browse(tmp_path, place, "--dump-dom")
    blocked = place.with_name("blocked.html")
    text = place.read_text(encoding="utf-8").replace("</body>", "<script>document.title = 'ran'</script></body>")
    blocked.write_text(text, encoding="utf-8")
    assert "<title>orders" in browse(tmp_path, blocked, "--dump-dom")


def test_the_page_is_printed_on_few_sheets(tmp_path: Path) -> None:
    place, paper = write_page(tmp_path), tmp_path / "report.pdf"
    browse(tmp_path, place, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    assert 1 <= paper.read_bytes().count(b"/Type /Page\n") <= 3


@pytest.mark.parametrize("width", [500, 690, 800, 950])
def test_no_window_scrolls_sideways(tmp_path: Path, width: int) -> None:
    place = write_page(tmp_path, write_wide)
    script = "<script>document.title = `${document.documentElement.scrollWidth} of ${innerWidth}`</script></body>"
    text = place.read_text(encoding="utf-8").replace("Content-Security-Policy", "x").replace("</body>", script)
    place.write_text(text, encoding="utf-8")
    assert f"<title>{width} of {width}</title>" in browse(tmp_path, place, f"--window-size={width},700", "--dump-dom")
