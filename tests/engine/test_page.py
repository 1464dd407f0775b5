"""The page of the report in a real browser: it is drawn, in light and dark, wide and narrow, and asks for nothing."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from support.drift_log import write_drift
from widen.log.read.snapshot import open_snapshot
from widen.log.store.log_store import LogStore
from widen.report.build_report import build_report
from widen.report.html_page import render_page
from widen.report.sample_masking import Samples, mask_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
PAPER = {"light": (247, 246, 243), "dark": (18, 21, 25)}

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


@pytest.mark.parametrize(("theme", "width"), [("light", 1000), ("dark", 420)])
def test_the_page_is_drawn(tmp_path: Path, theme: str, width: int) -> None:
    text = render_page(
        mask_report(build_report(open_snapshot(LogStore(str(write_drift(tmp_path / "orders"))))), Samples.MASKED)
    )
    # Headless browsers have no setting for dark that all versions know.
    text = text.replace("(prefers-color-scheme: dark)", "all" if theme == "dark" else "not all")
    place, picture = tmp_path / "report.html", tmp_path / "report.png"
    place.write_text(text, encoding="utf-8")
    size, profile = f"--window-size={width},700", f"--user-data-dir={tmp_path / 'profile'}"
    command = [str(BROWSER), *FLAGS, profile, size, f"--screenshot={picture}", place.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)

    found_width, height, rows = pixels(picture.read_bytes())
    assert (found_width, height) == (width, 700)
    step = len(rows[0]) // width
    colours = {row[at : at + 3] for row in rows for at in range(0, len(row), step)}
    assert tuple(rows[2][:3]) == PAPER[theme]
    assert len(colours) > 50, "text and charts were drawn"
