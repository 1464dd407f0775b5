"""Excel workbooks for tests, written cell by cell as Office Open XML.

Source: ECMA-376, Part 1: "SpreadsheetML"
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any
from xml.sax.saxutils import escape

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPES = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'

FORMATS = {"General": 0, "date": 14, "moment": 22, "time": 21, "duration": 46}
"""Number formats of ECMA-376 that every reader knows, by what they show."""

EPOCH, EPOCH_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)


class Formula(str):
    """The result of a formula that is a text."""


class Error(str):
    """An error value, such as #N/A."""


def workbook(sheets: Mapping[str, Sequence[Sequence[Any]]], *, is_1904: bool = False, inline: bool = False) -> bytes:
    """Return a workbook.

    Args:
        sheets: The rows of each sheet. None is a cell without a value.
        is_1904: Whether days are counted from 1904.
        inline: Whether texts stand in their cells, and not in the table of shared texts.
    """
    texts: dict[str, int] = {}
    styles = list(FORMATS)

    def cell(value: Any, place: str) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
        if isinstance(value, Error):
            return f'<c r="{place}" t="e"><v>{value}</v></c>'
        if isinstance(value, Formula):
            return f'<c r="{place}" t="str"><f>A1</f><v>{escape(value)}</v></c>'
        if isinstance(value, str):
            if inline:
                return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
            return f'<c r="{place}" t="s"><v>{texts.setdefault(value, len(texts))}</v></c>'
        number, style = to_serial(value, EPOCH_1904 if is_1904 else EPOCH)
        return f'<c r="{place}" s="{styles.index(style)}"><v>{number!r}</v></c>'

    parts = {}
    for number, rows in enumerate(sheets.values(), 1):
        lines = []
        for at, row in enumerate(rows, 1):
            cells = "".join(cell(value, f"{_letters(column)}{at}") for column, value in enumerate(row))
            lines.append(f'<row r="{at}">{cells}</row>')
        parts[f"xl/worksheets/sheet{number}.xml"] = (
            f'<worksheet xmlns="{_MAIN}"><sheetData>{"".join(lines)}</sheetData></worksheet>'
        )
    shared = "".join(f'<si><t xml:space="preserve">{escape(text)}</t></si>' for text in texts)
    parts["xl/sharedStrings.xml"] = f'<sst xmlns="{_MAIN}">{shared}</sst>'
    formats = "".join(f'<xf numFmtId="{FORMATS[style]}" xfId="0"/>' for style in styles)
    parts["xl/styles.xml"] = f'<styleSheet xmlns="{_MAIN}"><cellXfs>{formats}</cellXfs></styleSheet>'
    names = "".join(
        f'<sheet name="{escape(name)}" sheetId="{at}" r:id="rId{at}"/>' for at, name in enumerate(sheets, 1)
    )
    epoch = '<workbookPr date1904="1"/>' if is_1904 else ""
    parts["xl/workbook.xml"] = (
        f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}">{epoch}<sheets>{names}</sheets></workbook>'
    )
    links = "".join(
        f'<Relationship Id="rId{at}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{at}.xml"/>'
        for at in range(1, len(sheets) + 1)
    )
    links += f'<Relationship Id="s" Type="{_OFFICE}/sharedStrings" Target="sharedStrings.xml"/>'
    links += f'<Relationship Id="t" Type="{_OFFICE}/styles" Target="styles.xml"/>'
    parts["xl/_rels/workbook.xml.rels"] = f'<Relationships xmlns="{_PACKAGE}/relationships">{links}</Relationships>'
    parts["_rels/.rels"] = (
        f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="w" Type="{_OFFICE}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>'
    )
    kinds = {"/xl/workbook.xml": "sheet.main", "/xl/sharedStrings.xml": "sharedStrings", "/xl/styles.xml": "styles"}
    kinds |= {f"/xl/worksheets/sheet{at}.xml": "worksheet" for at in range(1, len(sheets) + 1)}
    overrides = "".join(
        f'<Override PartName="{name}" ContentType="{_TYPES}.{kind}+xml"/>' for name, kind in kinds.items()
    )
    parts["[Content_Types].xml"] = (
        f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>{overrides}</Types>'
    )
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in parts.items():
            file.writestr(name, _HEAD + text)
    return sink.getvalue()


def to_serial(value: Any, epoch: datetime) -> tuple[float | int, str]:
    """Return a number as a workbook stores it, and the name of its format."""
    if isinstance(value, datetime):
        return (value - epoch) / timedelta(days=1), "moment"
    if isinstance(value, date):
        return (datetime(value.year, value.month, value.day) - epoch).days, "date"
    if isinstance(value, time):
        return timedelta(hours=value.hour, minutes=value.minute, seconds=value.second) / timedelta(days=1), "time"
    if isinstance(value, timedelta):
        return value / timedelta(days=1), "duration"
    return value, "General"


def _letters(column: int) -> str:
    letters = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(65 + rest) + letters
    return letters
