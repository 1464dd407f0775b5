"""Masks and exclusions fail closed: no hidden value is in a row, event, plan or quarantined text, or all is refused.

WIDEN_MASK_CASES sets the number of generated cases.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from widen.batches.text_tasks import drain_arrow_batches
from widen.evolution.evolve import evolve, merge_pass
from widen.evolution.plan import Plan, explain_plan, find_unmatched
from widen.evolution.policy import ANY_MAP, FixedColumn, Mode, Pin, Policy, Samples, TextForm
from widen.files.arrow_types import to_arrow_schema
from widen.json.document import parse_document
from widen.json.observation import Observation, observation_from_json
from widen.model.column_path import format_path
from widen.model.schema_json import parse_type
from widen.model.types import INTEGER, STRING, Field, StructType
from widen.proof.source_reader import SourceReader
from widen.rows.row_builder import OriginColumn, RowBuilder

CASES = int(os.environ.get("WIDEN_MASK_CASES", "150"))
NAMES = ("email", "straße", "a b", "x.y", "Id", "kéy", "q`q", "ĲS", "_rescued", "email_string", "email_2", "İx")
NAMES += ("long" * 90,)
LONG = "filler " * 800
"""Longer than what events, quarantines and statistics show of a text."""
ORIGIN = "_origin"


@dataclass
class Case:
    """A policy and the texts of its batches."""

    random: random.Random
    policy: Policy
    batches: list[list[bytes]]
    secrets: list[str] = field(default_factory=list)
    base: StructType | None = None


class Generator:
    """Makes one case from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.secrets: list[str] = []

    def case(self) -> Case:
        draw = self.random
        path = tuple(draw.choice(NAMES) for _ in range(draw.choice((1, 1, 2, 2, 3))))
        spelled = tuple(map(self.recased, path))
        hidden = {draw.choice(("masked", "excluded")): frozenset([spelled])}
        pins: dict[tuple[str, ...], Pin] = {}
        for length in range(1, len(path)):
            # Below a map, a pin names an entry, which is no field.
            if draw.random() < 0.4 and not any(str(pin).startswith("map") for pin in pins.values()):
                pins[path[:length]] = draw.choice(
                    (TextForm.TEXT, TextForm.JSON, ANY_MAP, parse_type("map<string,string>"), Mode.SPLIT, STRING)
                )
        if draw.random() < 0.1:
            pins[path] = draw.choice((TextForm.JSON, parse_type("date"), parse_type("int"), ANY_MAP))
        self.maps = {above for above, pin in pins.items() if str(pin).startswith("map")}
        is_fixed = draw.random() < 0.3
        policy = Policy(
            mode=draw.choice((Mode.WIDEN, Mode.WIDEN, Mode.SPLIT, Mode.FREEZE)),
            pins=pins,
            samples=draw.choice((Samples.RAW, Samples.RAW, Samples.MASKED)),
            detects_maps=draw.random() < 0.2,
            date_fields=frozenset([()]) if draw.random() < 0.3 else frozenset(),
            fixed_columns={("n",): FixedColumn("n", "NOT NULL", is_required=True)} if is_fixed else {},
            **hidden,
        )
        base = StructType((Field("n", INTEGER, nullable=False),)) if is_fixed else None
        batches = [[self.text(path) for _ in range(draw.randint(1, 6))] for _ in range(draw.randint(1, 3))]
        return Case(draw, policy, batches, self.secrets, base)

    def recased(self, name: str) -> str:
        return self.random.choice((name, name, name.upper(), name.lower(), name.swapcase()))

    def key(self, path: tuple[str, ...]) -> str:
        """Return a key of a record; pins are for one spelling, so a map is spelled as its pin."""
        is_above_map = any(above[: len(path)] == path for above in self.maps)
        return path[-1] if is_above_map else self.recased(path[-1])

    def secret(self) -> Any:
        """Return a value with a part that is nowhere else."""
        draw = self.random
        word = "".join(draw.choices("ghjkmnpqrs", k=14))
        digits = str(draw.randint(10**14, 10**15 - 1))
        self.secrets += [word, digits]
        return draw.choice(
            (
                word,
                word,
                int(digits),
                f"+{digits}",
                {word: 1},
                {"deep": [{"er": word}]},
                [word, int(digits)],
                [[word]],
                f"2024-05-01T10:00:00.{digits[:6]}Z {word}",
                json.dumps({"k": word}),
                LONG + word,
                word * 60,
                int(digits * 20),
                float(f"0.{digits}"),
                {LONG + word: {word: None}},
                {word * 60: word},
            )
        )

    def text(self, path: tuple[str, ...]) -> bytes:
        """Return a record with a secret below a path, in one of the forms that such a value comes in."""
        draw = self.random
        value: Any = self.secret()
        for length in range(len(path), 1, -1):
            value = self.around(path[:length], value)
        record = {
            self.key(path[:1]): value,
            "n": draw.choice((1, 1, "x", None)),
            "other": draw.choice((1, "a", [2])),
        }
        if draw.random() < 0.3 and len(path) == 1:
            record[self.recased(path[0])] = self.secret()
        text = json.dumps(record, ensure_ascii=draw.random() < 0.5)
        if draw.random() < 0.05:
            text = text[:-1]
        elif draw.random() < 0.05:
            text = text[:-1] + "," + json.dumps(path[0]) + ":1," + json.dumps(path[0]) + ":2}"
        elif draw.random() < 0.05:
            text = text + text
        elif draw.random() < 0.05:
            text = f"[{text}]"
        return text.encode()

    def around(self, path: tuple[str, ...], value: Any) -> Any:
        draw = self.random
        inner = {self.key(path): value}
        if draw.random() < 0.4:
            inner["beside"] = draw.choice((1, "b", None, {"c": 1}))
        if path[:-1] in self.maps and draw.random() < 0.5:
            inner = {"k1": inner, "k2": {}}
        form = draw.randint(0, 9)
        if form == 0:
            return json.dumps(inner)
        if form == 1:
            return [inner, None, "s"]
        if form == 2:
            return [[inner]]
        if form == 3 and path[:-1] not in self.maps:
            return f"{path[-1]}={value!r}"
        if form == 4:
            return [json.dumps([inner])]
        return inner


def leaks(case: Case, *shown: object) -> list[str]:
    text = "\n".join(each if isinstance(each, str) else repr(each) for each in shown)
    return [secret for secret in case.secrets if secret in text]


def write(case: Case, base: StructType | None, texts: list[bytes]) -> tuple[Plan, Observation, list[dict[str, Any]]]:
    """Return the plan of a batch, what was observed, and its rows with the text of each."""
    observed = Observation()
    for _ in range(8):
        plan = evolve(base, observed, case.policy)
        column = OriginColumn(ORIGIN, is_for_all=case.random.random() < 0.5)
        apart = [tuple(path) for path in observed.apart]
        builder = RowBuilder(plan.schema, case.policy, base, column, apart=apart)
        origin = Field(ORIGIN, parse_type("struct<text: string, file: string, position: bigint, reason: string>"))
        arrow = to_arrow_schema(StructType((*plan.schema.fields, origin)))
        rows: list[dict[str, Any]] = []
        for number, text in enumerate(texts):
            builder.add([text], [("f", number)])
            rows += [row for batch in drain_arrow_batches(builder, arrow) for row in batch.to_pylist()]
            builder.adapt()
        seen = observation_from_json(builder.observation.to_json())
        observed, is_mixed = merge_pass(observed, seen, plan.schema, case.policy)
        confirmed = evolve(base, observed, case.policy)
        if confirmed.schema == plan.schema and not is_mixed:
            return confirmed, observed, rows
    raise AssertionError("the plan still changed")


def expected(case: Case, schema: StructType, text: bytes) -> object:
    """Return what the proof expects of the rows of a text, which its fast path must not change."""
    reader = SourceReader(schema, case.policy)
    exact = list(reader.read_exactly(text))
    assert list(reader.read(text)) == exact
    return exact


def run(seed: int) -> bool:
    """Return whether a case was written; False if a batch of it was refused."""
    case = Generator(seed).case()
    base, what = case.base, f"seed {seed}: {case.policy}"
    for texts in case.batches:
        plan, observed, rows = write(case, base, texts)
        unmatched = find_unmatched(case.policy, base, plan.schema, observed)
        if any(each.hides for each in unmatched) or plan.refused:
            return False
        shown = (rows, msgspec.json.encode(plan.to_value()).decode(), "\n".join(explain_plan(plan)))
        assert not leaks(case, *shown, observed.to_json().decode()), (what, texts, rows)
        assert not leaks(case, [expected(case, plan.schema, text) for text in texts]), (what, texts)
        base = plan.schema
    return True


def test_no_hidden_value_is_written_or_shown() -> None:
    written = sum(run(seed) for seed in range(CASES))
    assert written > CASES // 2  # else the cases would prove little


def test_a_name_of_no_field_is_refused() -> None:
    for seed in range(30):
        draw = random.Random(seed)
        typo = "".join(draw.choices("tuvw", k=8))
        path = (*draw.choice(((), ("m",), ("r",), ("j",))), typo)
        pins: dict[tuple[str, ...], Pin] = {("m",): ANY_MAP, ("j",): TextForm.JSON}
        text = json.dumps({"m": {"email": "s"}, "r": {"email": "s"}, "j": {"email": "s"}}).encode()
        policy = Policy(masked=frozenset([path]), pins=pins)
        plan, observed, _ = write(Case(draw, policy, []), None, [text])
        unmatched = find_unmatched(policy, None, plan.schema, observed)
        assert [each.source for each in unmatched if each.hides] == [path], format_path(path)


def test_the_text_of_a_record_keeps_what_is_not_hidden() -> None:
    policy = Policy(masked=frozenset([("Customer", "EMAIL")]), pins={("m",): ANY_MAP})
    case = Case(random.Random(1), policy, [])
    text = b'{"customer":{"email":"ann","name":"A"},"CUSTOMER":"name=A","m":{"k":1}}'
    _, _, rows = write(case, None, [text])
    assert rows[0]["customer"] == {"email": "***", "name": "A"}
    assert parse_document(text) != rows[0]
    assert [value for key, value in rows[0].items() if key.lower().startswith("customer_")] == ["***"]
