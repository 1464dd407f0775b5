"""Merges that Delta Lake and Widen carry out side by side: shapes of nested values crossed with what a source changes.

Every case says the same to both engines: a table, a source, and clauses whose assignments are texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Assignments: TypeAlias = Mapping[str, str] | None
"""The values by column; None is a star."""


@dataclass(frozen=True)
class Clause:
    """A clause for both engines.

    Args:
        side: ``MATCHED``, ``NOT MATCHED`` or ``NOT MATCHED BY SOURCE``.
        values: What is assigned.
        condition: For which rows.
        deletes: Whether it deletes the rows.
    """

    side: str
    values: Assignments = None
    condition: str | None = None
    deletes: bool = False

    @property
    def sql(self) -> str:
        """The clause in SQL."""
        condition = f" AND {self.condition}" if self.condition else ""
        return f"WHEN {self.side}{condition} THEN {self._action}"

    @property
    def _action(self) -> str:
        if self.deletes:
            return "DELETE"
        if self.side == "NOT MATCHED":
            names, values = (self.values or {}).keys(), (self.values or {}).values()
            return "INSERT *" if self.values is None else f"INSERT ({', '.join(names)}) VALUES ({', '.join(values)})"
        listed = ", ".join(f"{name} = {value}" for name, value in (self.values or {}).items())
        return "UPDATE SET *" if self.values is None else f"UPDATE SET {listed}"

    def add_to(self, builder: Any) -> Any:
        """Return a builder of Widen with this clause, too."""
        method = f"when_{self.side.lower().replace(' ', '_')}"
        if self.deletes:
            return getattr(builder, f"{method}_delete")(condition=self.condition)
        method += "_insert" if self.side == "NOT MATCHED" else "_update"
        if self.values is None:
            return getattr(builder, f"{method}_all")(condition=self.condition)
        return getattr(builder, method)(self.values, condition=self.condition)


def update(values: Assignments = None, condition: str | None = None) -> Clause:
    """Return a clause that updates rows that match."""
    return Clause("MATCHED", values, condition)


def insert(values: Assignments = None, condition: str | None = None) -> Clause:
    """Return a clause that inserts rows that do not match."""
    return Clause("NOT MATCHED", values, condition)


def by_source(values: Assignments = None, condition: str | None = None) -> Clause:
    """Return a clause that updates rows that the source does not match."""
    return Clause("NOT MATCHED BY SOURCE", values, condition)


@dataclass(frozen=True)
class Case:
    """One merge.

    Args:
        name: What it shows.
        target: A query that gives the rows of the table.
        source: A query that gives the rows of the source.
        clauses: Of the merge.
        evolves: Whether the schema may evolve.
        on: When a row of the source matches.
        aliases: What the table and the source are called.
        properties: Of the table.
        is_refused: Whether both engines refuse it.
    """

    name: str
    target: str
    source: str
    clauses: tuple[Clause, ...]
    evolves: bool = False
    on: str = "t.id = s.id"
    aliases: tuple[str, str] = ("t", "s")
    properties: Mapping[str, str] = field(default_factory=dict)
    is_refused: bool = False

    def __str__(self) -> str:
        return f"{self.name}{', evolving' if self.evolves else ''}"


# ---- shapes crossed with changes -------------------------------------------------------------------

SHAPES = {
    "struct": "{}",
    "array": "array({}, NULL)",
    "map": "map('k', {})",
    "array in struct": "named_struct('n', array({}))",
    "array in map": "map('k', array({}))",
    "key": "map({}, 1)",
}
"""Where the struct stands that the table and the source do not agree on."""

OLD = "named_struct('a', 1, 'b', 2)"
EVOLVING = {
    "missing": "named_struct('b', 20)",
    "extra": "named_struct('a', 10, 'b', 20, 'c', 30)",
    "renamed": "named_struct('a', 10, 'c', 30)",
}
"""What only schema evolution lets the source do."""

ALWAYS = {
    "reordered": "named_struct('B', 20, 'a', 10)",
    "text of a number": "named_struct('a', '10', 'b', 20)",
    "double": "named_struct('a', 1.7D, 'b', 20)",
}


def explicit(columns: Iterable[str]) -> tuple[Clause, ...]:
    """Return clauses that assign columns of the source one by one."""
    values = {column: f"s.{column}" for column in columns}
    return (update(values), insert({"id": "s.id", **values}))


def crossed() -> Iterator[Case]:
    """Yield every shape with every change, assigned by stars and by name, with and without evolution.

    What is accepted goes into one merge with a column for each pair, what is refused is refused for each pair alone.
    """
    for changes, evolutions in ((EVOLVING, (True,)), (ALWAYS, (False, True))):
        pairs = [(wrapped, new) for wrapped in SHAPES.values() for new in changes.values()]
        old = {f"v{at}": wrapped.format(OLD) for at, (wrapped, _) in enumerate(pairs)}
        new = {f"v{at}": wrapped.format(value) for at, (wrapped, value) in enumerate(pairs)}
        for how, clauses in {"stars": (update(), insert()), "by name": explicit(old)}.items():
            for evolves in evolutions:
                yield Case(f"{', '.join(changes)}, {how}", _rows(old, (1, 2)), _rows(new, (2, 3)), clauses, evolves)
    for change, value in EVOLVING.items():
        for shape, wrapped in SHAPES.items():
            for how, clauses in {"stars": (update(), insert()), "by name": explicit(["v"])}.items():
                target = _rows({"v": wrapped.format(OLD)}, (1, 2))
                source = _rows({"v": wrapped.format(value)}, (2, 3))
                yield Case(f"{change} in {shape}, {how}", target, source, clauses, is_refused=True)


def _rows(columns: Mapping[str, str], ids: tuple[int, int]) -> str:
    made = ", ".join(f"{value} {column}" for column, value in columns.items())
    return f"SELECT id, {made} FROM VALUES ({ids[0]}), ({ids[1]}) AS x(id)"


# ---- names -----------------------------------------------------------------------------------------

T = "SELECT id, v FROM VALUES (1, 10), (2, 20) AS x(id, v)"
S = "SELECT id, v, w FROM VALUES (2, 200, 7), (3, 300, 8) AS x(id, v, w)"
SELF = "SELECT id, a, named_struct('a', 0, 'target', 5) target FROM VALUES (1, 10), (2, 20) AS x(id, a)"
SELF_NEW = "SELECT id, 7 b, named_struct('a', 1, 'b', 2) target FROM VALUES (2) AS x(id)"
DOTTED = "SELECT id, 1 `a.b`, named_struct('x.y', 2, 'z', named_struct('p.q', 3)) v FROM VALUES (1), (2) AS x(id)"
DOTTED_NEW = "SELECT id, 9 `a.b`, named_struct('x.y', 8, 'z', named_struct('p.q', 7)) v FROM VALUES (2), (3) AS x(id)"
DOTTED_FIELD = "SELECT 2 id, named_struct('n.m', 5) v"


def named() -> Iterator[Case]:
    """Yield merges that show which side a name means."""
    row, taken = {"id": "id", "v": "v"}, update({"v": "s.v"})
    yield Case("an insert sees the source alone", T, S, (taken, insert(row, "v > 300 OR id = 3")))
    yield Case("a clause by source sees the table alone", T, S, (taken, by_source({"v": "v + 1"}, "v > 1")))
    yield Case("one side's own name", T, S, (update({"V": "w"}), insert({"ID": "Id", "V": "W"})))
    yield Case("the alias of the table", T, S, (update({"t.v": "S.V"}), insert({"t.id": "s.id", "T.v": "1"})))
    yield Case("the alias of the source", T, S, (update({"s.w": "s.w"}),), evolves=True)
    assigned = {"`a.b`": "s.`a.b`", "v.`x.y`": "s.v.`x.y` + t.v.`x.y`", "t.v.z.`p.q`": "s.v.z.`p.q`"}
    yield Case("dots", DOTTED, DOTTED_NEW, (update(None, "t.id = 0"), insert()))
    yield Case("dots, by name", DOTTED, DOTTED_NEW, (update(assigned), insert({"id": "id", "`a.b`": "`a.b`"})))
    yield Case("dots, new", DOTTED, DOTTED_FIELD, (update({"v.`n.m`": "s.v.`n.m`"}),), evolves=True)
    for name, clauses, evolves in (
        ("an insert names the table", (insert({"id": "s.id", "v": "t.v"}),), False),
        ("a clause by source names the source", (by_source({"v": "s.v"}),), False),
        ("a name of both sides", (update({"v": "v"}),), False),
        ("a condition of both sides", (update({"v": "s.v"}, "v > 0"),), False),
        ("the alias of the source", (update({"s.v": "s.v"}),), False),
        ("twice without case", (update({"v": "s.v", "V": "s.w"}),), False),
        ("nowhere", (update({"nowhere": "s.w"}),), False),
        ("nowhere", (update({"nowhere": "s.w"}),), True),
        ("inserted nowhere", (insert({"id": "s.id", "nowhere": "s.w"}),), True),
    ):
        yield Case(name, T, S, clauses, evolves, is_refused=True)
    yield from _named_as_the_table()


def _named_as_the_table() -> Iterator[Case]:
    """Yield assignments to a table that has a column called as its alias."""
    names, on = ("target", "source"), "target.id = source.id"
    whole = "named_struct('a', 1, 'target', 2)"
    for path, value in {
        "target.a": "v",
        "target.target.a": "v",
        "target.target": whole,
        "target.target.target": "v",
    }.items():
        yield Case(path, SELF, S, (update({path: value}),), on=on, aliases=names)
    for path, evolves, is_refused in (
        ("target.b", False, True),
        ("target.b", True, False),
        ("target.target.b", False, True),
        ("target.target.b", True, True),
    ):
        clauses = (update({path: f"source{path.removeprefix('target')}"}),)
        yield Case(f"new {path}", SELF, SELF_NEW, clauses, evolves, on, names, is_refused=is_refused)


# ---- casts -----------------------------------------------------------------------------------------

CAST = [
    ("int", "'12'"), ("int", "' 12 '"), ("int", "2.7D"), ("int", "-2.7D"), ("int", "2.7BD"), ("int", "true"),
    ("bigint", "float(1.5)"), ("bigint", "timestamp'2020-01-01 00:00:00'"), ("double", "'1e3'"), ("double", "true"),
    ("float", "1.1D"), ("float", "1e300D"), ("decimal(4,2)", "'1.239'"), ("decimal(4,2)", "1.235BD"),
    ("decimal(4,2)", "1.239D"), ("decimal(4,2)", "true"), ("boolean", "'true'"), ("boolean", "2"), ("boolean", "0.0D"),
    ("string", "1.50BD"), ("string", "true"), ("string", "date'2020-01-01'"), ("string", "array(1, 2)"),
    ("string", "named_struct('a', 1)"), ("string", "map('k', 1)"), ("binary", "'text'"), ("date", "'2020-02-03'"),
    ("date", "timestamp'2020-01-01 12:00:00'"), ("timestamp", "'2020-02-03 04:05:06'"), ("timestamp", "1.5D"),
    ("timestamp", "date'2020-01-01'"), ("timestamp", "timestamp_ntz'2020-01-01 00:00:00'"), ("timestamp", "1"),
    ("array<int>", "array('1', '2')"), ("array<int>", "array(1.5D)"), ("array<string>", "array(1)"),
    ("map<string,int>", "map('k', '1')"), ("map<int,int>", "map('1', 1)"), ("struct<a:int>", "named_struct('a', '1')"),
    ("struct<a:int>", "NULL"), ("array<struct<a:int>>", "array(NULL)"), ("struct<a:int>", "named_struct('A', 2.5D)"),
]  # fmt: skip
"""Types of columns, with values that are cast to them."""

NOT_CAST = [
    ("int", "'12.5'"), ("tinyint", "'300'"), ("int", "3e10D"), ("array<int>", "array('x')"), ("date", "'soon'"),
    ("int", "date'2020-01-01'"), ("int", "binary('a')"), ("binary", "1"), ("date", "1"), ("timestamp", "true"),
    ("array<int>", "'[1]'"), ("struct<a:int>", "'1'"), ("array<int>", "map('a', 1)"), ("int", "array(1)"),
]  # fmt: skip


def cast() -> Iterator[Case]:
    """Yield values of one type that are assigned to columns of another type."""
    columns = ", ".join(f"CAST(NULL AS {column}) v{at}" for at, (column, _) in enumerate(CAST))
    values = {f"v{at}": value for at, (_, value) in enumerate(CAST)}
    yield Case("casts", f"SELECT 1 id, {columns}", "SELECT 1 id", (update(values),))
    for column, value in NOT_CAST:
        target = f"SELECT 1 id, CAST(NULL AS {column}) v"
        yield Case(f"{value} to {column}", target, "SELECT 1 id", (update({"v": value}),), is_refused=True)


# ---- evolution -------------------------------------------------------------------------------------

WIDENING = {"delta.enableTypeWidening": "true"}
NARROW = "SELECT 1 id, 1S v, named_struct('a', 1S) n, array(1S) l"
WIDE = (
    "SELECT x.id, 70000 v, 7L w, 'x' z, named_struct('a', 70000, 'b', 1) n, array(70000) l "
    "FROM VALUES (1), (3) AS x(id)"
)

GROWS: list[tuple[Clause, ...]] = [
    (update({"v": "s.v + 1"}), insert({"id": "s.id", "v": "v + 1"})),
    (update({"v": "s.w"}),),
    (update({"v": "s.v * 2L", "n.a": "s.n.a + 1", "l": "transform(s.l, x -> x + 1)"}),),
    (update({"v": "70000L", "n.a": "s.v"}),),
    (update({"n": "s.n", "w": "s.w + 1BD"}),),
    (update({"n.b": "s.v + 1", "w": "length(s.z)"}),),
    (insert({"id": "s.id", "z": "concat(z, z)", "w": "1"}),),
    (update({"w": "s.v"}), insert({"id": "s.id", "z": "s.z"})),
    (update({"v": "s.v + 1"}), insert()),
    (update({"z": "'old'"}), by_source({"v": "5"})),
    (insert(), by_source({"v": "70000"})),
    (update(None, "s.v = 1"), insert({"id": "s.id"})),
]
"""Clauses that let a table grow; where it may not, some are refused before they run, and the others overflow."""

REFUSED: list[tuple[Clause, ...]] = [
    (update({"n.c": "s.n.b"}),),
    (insert(), by_source({"w": "1"})),
    (insert({"id": "s.id"}), by_source({"w": "1"})),
]


def evolving() -> Iterator[Case]:
    """Yield merges that may add columns and widen types, and the same ones where they may not."""
    for clauses in GROWS:
        text = "; ".join(clause.sql for clause in clauses)
        yield Case(text, NARROW, WIDE, clauses, True, properties=WIDENING)
    for clauses in REFUSED:
        yield Case("; ".join(c.sql for c in clauses), NARROW, WIDE, clauses, True, properties=WIDENING, is_refused=True)
    for clauses in GROWS[4:9]:
        yield Case("; ".join(c.sql for c in clauses), NARROW, WIDE, clauses, properties=WIDENING, is_refused=True)
    yield Case("no widening", NARROW, WIDE, (update({"v": "s.v"}),), True, is_refused=True)
    yield Case("what fits without widening", NARROW, WIDE, (update({"v": "s.w", "n.b": "s.n.b"}),), True)
