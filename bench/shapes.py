"""Every shape of records: what an interval and the proof cost beside Spark, and how many MB a core takes in a second.

    python bench/shapes.py [--turns 3] [--megabytes 6] [--seed 1] [--only nested,CSV] [--small] [--markdown]
    python bench/shapes.py --task [--megabytes 4] [--only …]

Ratios of processor seconds of all processes, in one warm session, worst first; medians of all turns but the first.
``known`` is Spark's write with a schema that it is given (for Parquet Spark's copy), ``infer`` Spark's inference and
write, ``quiet`` an interval into a table that has seen these bytes, ``first`` one into a new table, ``proof`` the proof
alone. ``--task`` runs the work of one task in this process, without Spark: MB of text a second that a core decodes into
a Parquet file, and that it proves.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import shape_data
from processor_time import processor_time

import widen
from widen.batches.text_tasks import EARLY_CHECKS, ROWS_PER_BATCH, drain_arrow_batches
from widen.evolution.evolve import evolve
from widen.evolution.policy import Policy
from widen.files.arrow_types import to_arrow_schema
from widen.json.observation import Observation, observation_from_json
from widen.model.types import StructType
from widen.rows.row_builder import RowBuilder

DATA = Path(__file__).resolve().parent.parent / ".work" / "data" / "bench" / "shapes"
TARGET = DATA / "target"
GOALS = {"quiet / known": 0.7, "first / infer": 0.5, "proof / known": 1.5}
MEDIAN_GOALS = {"quiet / known": 0.5, "first / infer": 0.35}


def main(arguments: list[str]) -> int:
    """Measure, print the table, and return 1 if a goal is missed."""
    options = _options(arguments)
    chosen = [
        name
        for name in shape_data.SHAPES
        if not options.only or any(word.lower() in name.lower() for word in options.only.split(","))
    ]
    size_bytes = round(options.megabytes * 10**6 * (0.1 if options.small else 1))
    if options.task:
        _print_tasks(chosen, options.seed, size_bytes)
        return 0
    return _print_ratios(chosen, options, size_bytes)


# ---- beside Spark ----------------------------------------------------------------------------------


def _print_ratios(names: Sequence[str], options: argparse.Namespace, size_bytes: int) -> int:
    from case import session

    spark = session()
    print(f"Shapes: one session, local[2]; load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    found: dict[str, dict[str, float]] = {}
    for name in names:
        found[name] = _ratios(spark, name, options, size_bytes)
        print(f"  {name}: {', '.join(f'{what} {ratio:.2f}' for what, ratio in found[name].items())}", flush=True)
    spark.stop()
    _print_table(found, is_markdown=options.markdown)
    missed = False
    for what, goal in GOALS.items():
        for name, ratios in sorted(found.items(), key=lambda item: -item[1].get(what, 0.0)):
            if what in ratios:
                missed |= _print_goal(f"{name}: {what}", ratios[what], goal)
        if what in MEDIAN_GOALS:
            middle = median(ratios[what] for ratios in found.values() if what in ratios)
            missed |= _print_goal(f"median: {what}", middle, MEDIAN_GOALS[what])
    return int(missed)


def _print_goal(work: str, ratio: float, goal: float) -> bool:
    print(f"  {work:<64}{ratio:>6.3f}  (at most {goal}){'' if ratio <= goal else '  MISSED'}", flush=True)
    return ratio > goal


def _print_table(found: dict[str, dict[str, float]], *, is_markdown: bool) -> None:
    titles = [*GOALS, "MB/s a core"]
    rows = sorted(found.items(), key=lambda item: -max(item[1].get(what, 0.0) / goal for what, goal in GOALS.items()))
    if is_markdown:
        print(f"| shape | {' | '.join(titles)} |\n|---|{'---|' * len(titles)}")
    for name, ratios in rows:
        places = [0 if title == "MB/s a core" else 2 for title in titles]
        cells = [
            f"{ratios[title]:.{digits}f}" if title in ratios else "–"
            for title, digits in zip(titles, places, strict=True)
        ]
        print(
            f"| {name} | {' | '.join(cells)} |"
            if is_markdown
            else f"  {name:<48}{''.join(map('{:>15}'.format, cells))}"
        )


def _ratios(spark: Any, name: str, options: argparse.Namespace, size_bytes: int) -> dict[str, float]:
    """Return the ratios of one shape."""
    shape = shape_data.SHAPES[name]
    source = _write(spark, name, options.seed, size_bytes)
    size = sum(file.stat().st_size for file in source.iterdir() if not file.name.startswith(("_", ".")))
    seen = DATA / "seen"
    ingest = partial(widen.ingest, str(source), into=str(TARGET), spark=spark, **shape.options)
    shutil.rmtree(seen, ignore_errors=True)
    shutil.rmtree(TARGET, ignore_errors=True)
    ingest()
    shutil.move(TARGET, seen)
    known, infer = _peers(spark, shape, source)
    turns: dict[str, list[float]] = {}
    for _ in range(options.turns):
        for what, work in (("known", known), ("infer", infer)):
            shutil.rmtree(TARGET, ignore_errors=True)
            turns.setdefault(what, []).append(_seconds(work))
        shutil.rmtree(TARGET, ignore_errors=True)
        turns.setdefault("first", []).append(_seconds(ingest))
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(seen, TARGET)
        with _proof_seconds() as proof:
            verified = _seconds(partial(_ingest_verified, ingest, proof))
        turns.setdefault("quiet", []).append(verified - sum(proof))
        turns.setdefault("proof", []).append(sum(proof))
    seconds = {what: median(each[1:] or each) for what, each in turns.items()}
    return {
        "quiet / known": seconds["quiet"] / seconds["known"],
        "first / infer": seconds["first"] / seconds["infer"],
        "proof / known": seconds["proof"] / seconds["known"],
        "MB/s a core": size / 10**6 / seconds["quiet"],
    }


def _ingest_verified(ingest: Callable[..., Any], proof: list[float]) -> None:
    records = ingest(verify=True).verification
    assert records is not None
    assert records.is_clean, str(records)
    assert proof, "the proof did not run"


@contextmanager
def _proof_seconds() -> Iterator[list[float]]:
    """Yield a list that gets the processor seconds of each proof."""
    from widen.targets import delta

    module: Any = delta
    found: list[float] = []
    verify = module.verify_rows

    def measured(*given: Any) -> Any:
        with processor_time() as used:
            result = verify(*given)
        found.append(sum(used.values()))
        return result

    module.verify_rows = measured
    try:
        yield found
    finally:
        module.verify_rows = verify


def _seconds(work: Callable[[], object]) -> float:
    with processor_time() as used:
        work()
    return sum(used.values())


def _write(spark: Any, name: str, seed: int, size_bytes: int) -> Path:
    shape = shape_data.SHAPES[name]
    place = DATA / f"{''.join(each if each.isalnum() else '-' for each in name)}-{seed}-{size_bytes}"
    source = shape_data.write_shape(place, shape, seed, size_bytes)
    if shape.form != "parquet":
        return source
    copy = place.with_name(place.name + "-parquet")
    if not (copy / "_SUCCESS").exists():
        spark.read.json(str(source)).write.mode("overwrite").parquet(str(copy))
    return copy


def _peers(spark: Any, shape: shape_data.Shape, source: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return Spark's write with a schema that it is given, and its inference and write."""
    target = str(TARGET)
    if shape.form == "parquet":
        copy: Callable[[], object] = lambda: spark.read.parquet(str(source)).write.parquet(target)  # noqa: E731
        return copy, copy
    if shape.form == "csv":
        reader = partial(spark.read.csv, str(source), header=True, inferSchema="detect_types" in shape.options)
        schema = reader().schema
        known = lambda: spark.read.csv(str(source), header=True, schema=schema).write.parquet(target)  # noqa: E731
        return known, lambda: reader().write.parquet(target)
    schema = spark.read.json(str(source)).schema
    known = lambda: spark.read.schema(schema).json(str(source)).write.parquet(target)  # noqa: E731
    return known, lambda: spark.read.json(str(source)).write.parquet(target)


# ---- one task, without Spark -----------------------------------------------------------------------


def _print_tasks(names: Sequence[str], seed: int, size_bytes: int) -> None:
    print(f"  {'shape':<48}{'rows MB/s':>12}{'proof MB/s':>12}{'source':>9}{'rows':>9}")
    for name in names:
        shape = shape_data.SHAPES[name]
        if shape.form == "json":
            _print_task(name, [line.encode() for line in shape.lines(seed, size_bytes)])


def _print_task(name: str, texts: list[bytes]) -> None:
    policy = Policy()
    schema = _find_schema(texts, policy)
    megabytes = sum(map(len, texts)) / 10**6
    with tempfile.TemporaryDirectory(prefix="widen-bench-") as folder:
        source, rows = Path(folder, "source.json"), Path(folder, "rows.parquet")
        source.write_bytes(b"".join(text + b"\n" for text in texts))
        started = time.process_time()
        _write_rows(schema, policy, texts, rows)
        writing = time.process_time() - started
        proof = _prove(schema, policy, texts, source, rows)
    speeds = [megabytes / seconds for seconds in (writing, sum(proof), *proof)]
    print(f"  {name:<48}{speeds[0]:>12.1f}{speeds[1]:>12.1f}{speeds[2]:>9.1f}{speeds[3]:>9.1f}", flush=True)


def _find_schema(texts: list[bytes], policy: Policy) -> StructType:
    observed = Observation()
    for _ in range(8):
        schema = evolve(None, observed, policy).schema
        builder = RowBuilder(schema, policy)
        for _ in _batches(builder, schema, texts):
            pass
        observed = observed.merged(observation_from_json(builder.observation.to_json()))
        if evolve(None, observed, policy).schema == schema:
            return schema
    raise AssertionError("the schema still changed after 8 passes")


def _batches(builder: RowBuilder, schema: StructType, texts: list[bytes]) -> Iterator[pa.RecordBatch]:
    arrow = to_arrow_schema(schema)
    # As in a task, the first records are few, so that the fast path soon knows what the others look like.
    checks = [0, *EARLY_CHECKS, *range(EARLY_CHECKS[-1] + ROWS_PER_BATCH, len(texts) + ROWS_PER_BATCH, ROWS_PER_BATCH)]
    for start, end in pairwise(checks):
        some = texts[start:end]
        builder.add(some, [("f", start + number) for number in range(len(some))])
        yield from drain_arrow_batches(builder, arrow)
        builder.adapt()


def _write_rows(schema: StructType, policy: Policy, texts: list[bytes], rows: Path) -> None:
    with pq.ParquetWriter(rows, to_arrow_schema(schema)) as out:
        for batch in _batches(RowBuilder(schema, policy, schema), schema, texts):
            out.write_batch(batch)


def _prove(schema: StructType, policy: Policy, texts: list[bytes], source: Path, rows: Path) -> tuple[float, float]:
    """Return the processor seconds for the source and for the rows."""
    from widen.frames.table_writers import TaskFiles
    from widen.log.log_store import LogStore
    from widen.proof.proof_files import ProofFile
    from widen.proof.record_digests import ALL, find_native_readers
    from widen.proof.row_encoder import LayoutMatcher, RecordLayout, learn_layout
    from widen.proof.source_reader import SourceReader
    from widen.verification import records

    started = time.process_time()
    layout = RecordLayout()
    if find_native_readers() is None:
        learned = learn_layout(texts[:50])
        matches = list(filter(None, map(LayoutMatcher(SourceReader(schema, policy).fields, learned).match, texts[:50])))
        layout = learned if len(matches) >= 0.3 * min(len(texts), 50) else layout
    files = (ProofFile(source.as_uri(), source.stat().st_size, False),)
    share = records.TaskShare(0, 1, layout, ALL)
    expected = records._sum_files(files, schema, policy, None, share)
    middle = time.process_time()
    store = TaskFiles(LogStore(str(rows.parent)), (rows.name,))
    actual = records._sum_table_files(store, schema, policy, share)
    ended = time.process_time()
    assert (expected.digest, expected.records) == (actual.digest, actual.records)
    return middle - started, ended - middle


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--small", action="store_true", help="a tenth of the data")
    parser.add_argument("--task", action="store_true", help="the work of one task, without Spark")
    parser.add_argument("--markdown", action="store_true", help="print the table for the documentation")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
