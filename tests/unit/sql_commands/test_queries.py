"""How the text of a query changes before Spark runs it: names of tables before columns, stars beside row lineage."""

from __future__ import annotations

import pytest

from widen.errors import InvalidStatement
from widen.sql_commands import queries
from widen.sql_commands.statements import TableReference

TABLE = "shop.eu.orders"


def edited(text: str, edits: list[queries._Edit]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def references(text: str, alias: str = "") -> list[queries._Reference]:
    """Every place of the table in a text, as one with row lineage."""
    found, at = [], text.find(f"FROM {TABLE}")
    while at >= 0:
        start = at + len("FROM ")
        place = TableReference(tuple(TABLE.split(".")))
        found.append(queries._Reference(start, start + len(TABLE), place, alias=alias, has_lineage=True))
        at = text.find(f"FROM {TABLE}", start)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT *, _row_id FROM {t}", "SELECT *{e}, _row_id FROM {t}"),
        ("SELECT DISTINCT o.* FROM {t} o ORDER BY a, b", "SELECT DISTINCT o.*{e} FROM {t} o ORDER BY a, b"),
        ("SELECT a * _row_id, count(*) FROM {t}", "SELECT a * _row_id, count(*) FROM {t}"),
        ("SELECT struct(*) FROM {t} WHERE _row_id > 1", "SELECT struct(*{e}) FROM {t} WHERE _row_id > 1"),
        ("SELECT * FROM (SELECT _row_id FROM {t}) s", "SELECT * FROM (SELECT _row_id FROM {t}) s"),
        ("SELECT * FROM (SELECT *, _row_id FROM {t}), u", "SELECT * FROM (SELECT *{e}, _row_id FROM {t}), u"),
        ("SELECT '*' AS x, _row_id FROM {t}", "SELECT '*' AS x, _row_id FROM {t}"),
    ],
)
def test_a_star_has_no_row_lineage(text: str, expected: str) -> None:
    query = text.format(t=TABLE)
    done = edited(query, [*queries._stars_without_lineage(query, references(query))])
    assert done == expected.format(t=TABLE, e=" EXCEPT (_row_id, _last_updated_sequence_number)")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT *, _row_id FROM {t} JOIN u USING (id)",
        "SELECT *, _row_id FROM {t}, u WHERE a = b",
        "SELECT * EXCEPT (id) FROM {t} WHERE _row_id > 1",
        "SELECT *, o.*, _row_id FROM {t} o",
        "SELECT * FROM {t} UNION SELECT _row_id FROM u",
    ],
)
def test_a_star_of_several_tables_is_refused(text: str) -> None:
    query = text.format(t=TABLE)
    with pytest.raises(InvalidStatement, match="name the columns, or use `widen read --row-lineage`"):
        list(queries._stars_without_lineage(query, references(query)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT shop.eu.orders.id FROM {t}", "SELECT orders.id FROM {t}"),
        ("SELECT EU.`orders`.id.x, eu.orders.* FROM {t}", "SELECT `orders`.id.x, orders.* FROM {t}"),
        ("SELECT s.eu.orders.id, orders.id, eu.id FROM {t}", "SELECT s.eu.orders.id, orders.id, eu.id FROM {t}"),
        ("SELECT 'eu.orders.id' FROM {t} ORDER BY eu.orders.id", "SELECT 'eu.orders.id' FROM {t} ORDER BY orders.id"),
    ],
)
def test_the_whole_name_of_a_table_before_a_column(text: str, expected: str) -> None:
    query = text.format(t=TABLE)
    done = edited(query, [*queries._short_qualifiers(query, references(query, " AS orders"))])
    assert done == expected.format(t=TABLE)
    assert not [*queries._short_qualifiers(query, references(query))]  # with an alias, it has no other name
