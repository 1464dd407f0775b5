"""Change events with the fields that the documentation of Debezium shows, typed by hand.

Source: Debezium: connectors for PostgreSQL, MySQL and MongoDB, "data change events"
"""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]

_ADA = {"id": 1, "first_name": "Ada", "last_name": "Hofer", "email": "ada@example.org"}
_ADA_MARIA = {**_ADA, "first_name": "Ada Maria"}


def _postgres(lsn: int, **more: Any) -> Event:
    return {
        "version": "2.7.4.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": 1559033904863,
        "ts_us": 1559033904863123,
        "ts_ns": 1559033904863123000,
        "snapshot": "false",
        "db": "postgres",
        "sequence": f'["{lsn - 9}","{lsn}"]',
        "schema": "public",
        "table": "customers",
        "txId": 555,
        "lsn": lsn,
        "xmin": None,
        **more,
    }


POSTGRES: list[Event] = [
    {
        "before": None,
        "after": _ADA,
        "source": _postgres(24023128, snapshot="true"),
        "op": "c",
        "ts_ms": 1559033904863,
        "ts_us": 1559033904863123,
        "ts_ns": 1559033904863123000,
        "transaction": None,
    },
    {
        "before": {"id": 1},
        "after": _ADA_MARIA,
        "source": _postgres(24023920, txId=556),
        "op": "u",
        "ts_ms": 1465584025523,
    },
    {
        "before": {"id": 1},
        "after": None,
        "source": _postgres(46523128, txId=557),
        "op": "d",
        "ts_ms": 1465581902461,
    },
]
"""An insert, an update and a deletion; the table has the default replica identity, so the state before is its key."""


def _mysql(position: int, ts_ms: int) -> Event:
    return {
        "version": "2.7.4.Final",
        "connector": "mysql",
        "name": "shop",
        "ts_ms": ts_ms,
        "snapshot": "false",
        "db": "inventory",
        "table": "customers",
        "server_id": 223344,
        "gtid": None,
        "file": "mysql-bin.000003",
        "pos": position,
        "row": 0,
        "thread": 7,
        "query": None,
    }


MYSQL: list[Event] = [
    {"before": None, "after": _ADA, "source": _mysql(154, 0), "op": "c", "ts_ms": 1465491411815},
    {"before": _ADA, "after": _ADA_MARIA, "source": _mysql(484, 1465581029000), "op": "u", "ts_ms": 1465581029523},
    {"before": _ADA_MARIA, "after": None, "source": _mysql(805, 1465581902000), "op": "d", "ts_ms": 1465581902461},
]


def _mongodb(ts_ms: int, order: int) -> Event:
    return {
        "version": "2.7.4.Final",
        "connector": "mongodb",
        "name": "shop",
        "ts_ms": ts_ms,
        "snapshot": "false",
        "db": "inventory",
        "rs": "rs0",
        "collection": "customers",
        "ord": order,
        "wallTime": None,
    }


_MONGO_ADA = '{"_id" : {"$numberLong" : "1004"},"first_name" : "Ada","last_name" : "Hofer"}'
_UPDATE = {"removedFields": None, "updatedFields": '{"first_name": "Ada Maria"}', "truncatedArrays": None}

MONGODB: list[Event] = [
    {"before": None, "after": _MONGO_ADA, "source": _mongodb(1558965508000, 31), "op": "c", "ts_ms": 1558965515240},
    {
        "before": None,
        "after": _MONGO_ADA.replace("Ada", "Ada Maria"),
        "updateDescription": _UPDATE,
        "source": _mongodb(1558965523000, 1),
        "op": "u",
        "ts_ms": 1558965523000,
    },
    {"before": None, "after": None, "source": _mongodb(1558965525000, 6), "op": "d", "ts_ms": 1558965525100},
]
"""The deletion has no state before it, as without pre-images."""

TOMBSTONES = ("null", " null\n", '{"schema": null, "payload": null}')


def truncation() -> Event:
    """Return the event of a truncated table."""
    return {"source": _postgres(46523200), "op": "t", "ts_ms": 1559033904961}
