"""Twelve sources that drift from day to day, for ``pipelines.toml`` beside this file.

``python examples/twelve-sources/make_days.py landing 3`` writes the third day into a folder. The files come from a
seed, so that every run is the same. It needs pyarrow and fastavro.
"""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import random
import sys
import zipfile
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

DAYS = 21
SEED = 45


def write_day(landing: Path, day: int, records: int = 20) -> Mapping[str, int]:
    """Write the files of a day, from 1 on, and return how many records each source has sent."""
    counts = {}
    for name, write in SOURCES.items():
        folder = landing / name
        folder.mkdir(parents=True, exist_ok=True)
        counts[name] = write(folder, day, random.Random(f"{SEED}-{name}-{day}"), records)
    return counts


def _lines(records: list[Any]) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


def write_orders(folder: Path, day: int, dice: random.Random, records: int) -> int:
    """Orders whose ids, totals and tags change their types."""

    def make(number: int) -> dict[str, Any]:
        total: Any = dice.randrange(3, 60) + (dice.choice((0, 0.5)) if day >= 3 else 0)
        order = {"id": (2**40 if day >= 7 else 0) + day * 1000 + number, "total": total}
        if day == 9:
            order["total"] = f"{total} EUR"
        order["tags"] = [dice.choice("abc")] if day >= 5 else dice.choice("abc")
        return order | ({"coupon": {"code": f"C{number}", "percent": 5}} if day > 2 else {})

    (folder / f"{day:02}.json").write_text(_lines([make(number) for number in range(records)]))
    return records


def write_clicks(folder: Path, day: int, dice: random.Random, records: int) -> int:
    """Clicks, compressed, with names in another case."""
    name = "userId" if day % 2 else "UserID"
    events = [
        {name: dice.randrange(99), "path": "/", "at": f"2024-01-{day:02}T10:00:00Z", f"week{day // 7}": {"n": number}}
        for number in range(records)
    ]
    (folder / f"{day:02}.json.gz").write_bytes(gzip.compress(_lines(events).encode(), mtime=0))
    return records


def write_sales(folder: Path, day: int, dice: random.Random, records: int) -> int:
    """CSV whose separator, encoding, columns and decimal sign change."""
    separator, mark, encoding = (",", ".", "utf-8") if day % 3 else (";", ",", "latin-1")
    names = ["id", "shop", "amount"] if day < 8 else ["shop", "id", "amount", "currency"]
    rows = [separator.join(names)]
    for number in range(records):
        amount = f"{dice.randrange(100)}{mark}{dice.randrange(10, 99)}"
        values = {"id": f"{day}{number:03}", "shop": '"Zürich, Süd; 1"', "amount": amount, "currency": "CHF"}
        rows.append(separator.join(values[name] for name in names))
    (folder / f"{day:02}.csv").write_bytes("\n".join([*rows, ""]).encode(encoding))
    return records


def write_stock(folder: Path, day: int, dice: random.Random, records: int) -> int:
    """Parquet whose columns change their types."""
    counts: list[Any] = [dice.randrange(100) for _ in range(records)]
    kind: Any = pa.int32() if day < 4 else pa.int64() if day < 8 else pa.float64()
    if day >= 8:
        counts[0] = float("nan")  # pandas' missing value
    times = [dt.datetime(2024, 1, day, 8, number % 60, tzinfo=dt.timezone.utc) for number in range(records)]
    price = pa.decimal128(6 if day < 10 else 12, 2 if day < 10 else 4)
    columns = {
        "sku": pa.array([f"s{number}" for number in range(records)]),
        "count": pa.array(counts, kind),
        "price": pa.array([Decimal(number) for number in range(records)], price),
        "at": pa.array(times, pa.timestamp("ns" if day >= 6 else "us", "UTC")),
    }
    pq.write_table(pa.table(columns), folder / f"{day:02}.parquet")
    return records


def write_customers(folder: Path, day: int, dice: random.Random, records: int) -> int:
    """Change events of Debezium, with a heartbeat."""
    events = []
    for number in range(records):
        row: Any = {"id": number + 1, "name": f"n{dice.randrange(99)}", "score": number if day < 6 else number + 0.25}
        op = "c" if day == 1 else "d" if day > 3 and number == day else "u"
        source = {"connector": "postgresql", "lsn": day * 10_000 + number, "snapshot": "false"}
        states = {"before": row if op == "d" else None, "after": None if op == "d" else row}
        events.append({**states, "op": op, "ts_ms": 1_706_500_000_000 + day, "source": source})
    (folder / f"{day:02}.json").write_text(_lines([{"ts_ms": 1_706_500_000_000}, *events]))
    return records


def write_profiles(folder: Path, day: int, dice: random.Random, records: int) -> int:
    """Documents of MongoDB in Extended JSON."""

    def make(number: int) -> dict[str, Any]:
        profile = {
            "_id": {"$oid": f"{day:04x}{number:020x}"},
            "visits": {"$numberLong": str(2**40 + number)} if day >= 5 else {"$numberInt": str(number)},
            "balance": {"$numberDecimal": f"{number}.50"},
            "seen": {"$date": {"$numberLong": str(1_706_500_000_000 + number)}},
        }
        return profile | ({"key": {"$binary": {"base64": "AQID", "subType": "00"}}} if day > 3 else {})

    (folder / f"{day:02}.json").write_text(_lines([make(number) for number in range(records)]))
    return records


def write_logs(folder: Path, day: int, dice: random.Random, records: int) -> int:
    """Log records of OpenTelemetry, in scopes of a resource."""

    def make(number: int) -> dict[str, Any]:
        body: Any = {"stringValue": f"m{number}"} if day < 6 else {"intValue": str(number)}
        time = str(1_706_500_000_000_000_000 + number)
        return {"timeUnixNano": time, "severityNumber": dice.choice((9, 17)), "body": body}

    every = [make(number) for number in range(records)]
    halves = every[: records // 2], every[records // 2 :]
    scopes = [{"scope": {"name": f"s{at}"}, "logRecords": half} for at, half in enumerate(halves)]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    document = {"resourceLogs": [{"resource": resource, "scopeLogs": scopes}]}
    (folder / f"{day:02}.json").write_text(json.dumps(document))
    return records


def write_webhooks(folder: Path, day: int, dice: random.Random, records: int) -> int:
    """Documents on many lines, one a file."""
    for number in range(3):
        data: Any = {"id": f"evt_{day}_{number}", "object": {"amount": dice.randrange(99), "paid": True}}
        if day >= 4:
            data["object"]["metadata"] = {"note": "x"} if number else []
        (folder / f"{day:02}-{number}.json").write_text(json.dumps(data, indent=2))
    return 3


def write_payments(folder: Path, day: int, dice: random.Random, records: int) -> int:
    """Avro with a union that grows."""
    amount: Any = ["null", "int"] if day < 5 else ["null", "int", "string"]
    fields = [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": amount},
        {"name": "on", "type": {"type": "int", "logicalType": "date"}},
        {"name": "fee", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ]
    rows = [
        {
            "id": day * 1000 + number,
            "amount": f"{number} EUR" if day >= 5 and number % 2 else number,
            "on": dt.date(2024, 1, day),
            "fee": Decimal(number).scaleb(-2),
        }
        for number in range(records)
    ]
    with (folder / f"{day:02}.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "payment", "fields": fields}, rows, codec="deflate")
    return records


def write_budget(folder: Path, day: int, dice: random.Random, records: int) -> int:
    """A sheet of Excel."""
    names = ["team", "month", "amount"] + (["note"] if day > 6 else [])
    rows: list[list[Any]] = [names]
    for number in range(records):
        amount = dice.randrange(1000) + (0.5 if day > 3 else 0)
        rows.append([f"t{number}", f"2024-{day % 12 + 1:02}", amount, "ok"][: len(names)])
    (folder / f"{day:02}.xlsx").write_bytes(to_xlsx(rows))
    return records


def write_sensors(folder: Path, day: int, dice: random.Random, records: int) -> int:
    """Readings with times since 1970 and NaN."""

    def make(number: int) -> str:
        value = "NaN" if number % 7 == 0 else str(number) if day < 5 else f"{number}.5"
        return f'{{"device": "d{dice.randrange(9)}", "at": {1_706_500_000_000 + number}, "value": {value}}}\n'

    (folder / f"{day:02}.json").write_text("".join(make(number) for number in range(records)))
    return records


def write_catalog(folder: Path, day: int, dice: random.Random, records: int) -> int:
    """One array of a REST API."""
    items = [
        {"sku": f"s{number}", "price": number if day < 9 else {"EUR": number}, "sizes": [dice.randrange(9)]}
        for number in range(records)
    ]
    (folder / f"{day:02}.json").write_text(json.dumps({"status": "ok", "data": {"page": day, "items": items}}))
    return records


SOURCES: Mapping[str, Callable[[Path, int, random.Random, int], int]] = {
    "orders": write_orders,
    "clicks": write_clicks,
    "sales": write_sales,
    "stock": write_stock,
    "customers": write_customers,
    "profiles": write_profiles,
    "logs": write_logs,
    "webhooks": write_webhooks,
    "payments": write_payments,
    "budget": write_budget,
    "sensors": write_sensors,
    "catalog": write_catalog,
}

_XLSX = {
    "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default '
    'Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default '
    'Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="application/'
    'vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/><Override PartName="/xl/worksheets/sheet1.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/></Types>',
    "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship '
    'Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": '<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="budget" '
    'sheetId="1" r:id="r1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" '
    'Target="worksheets/sheet1.xml"/></Relationships>',
}


def to_xlsx(rows: list[list[Any]]) -> bytes:
    """Return a workbook with one sheet."""

    def cell(value: Any) -> str:
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
        return f"<c><v>{value}</v></c>"

    lines = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
    sheet = '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in {**_XLSX, "xl/worksheets/sheet1.xml": f"{sheet}{lines}</sheetData></worksheet>"}.items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), '<?xml version="1.0"?>' + text)
    return content.getvalue()


if __name__ == "__main__":
    print(write_day(Path(sys.argv[1]), int(sys.argv[2])))
