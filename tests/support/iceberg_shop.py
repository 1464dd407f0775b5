"""An Iceberg table that one operation changes again and again, and the calls to its store and catalog.

The calls are those to PyIceberg's files and catalog, and to the store of data files and records of loads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyspark.sql import DataFrame, SparkSession

from support.fault import FAULTS_OF, READS, Fault, Injector
from widen import ingest
from widen.errors import StorageError, StorageRefused
from widen.iceberg.catalog import to_table_name
from widen.log.log_store import LogStore
from widen.table import IcebergTable

NAME = "shop.orders"
NEWEST = 2
"""How many branches and tags are read after each fault."""
HIGH = 10_000
"""What is added to the numbers of rows that do not stay as they are."""
WITHOUT_LATE = (Fault.REFUSED, Fault.ANSWER_LOST, Fault.INTERRUPT_BEFORE, Fault.INTERRUPT_AFTER, Fault.FOREIGN)
CALLS = {
    "commit_table": (SqlCatalog, (*WITHOUT_LATE, Fault.LATE)),
    "load_table": (SqlCatalog, WITHOUT_LATE),
    "open": (PyArrowFile, WITHOUT_LATE),
    "create": (PyArrowFile, WITHOUT_LATE),
    "delete": (PyArrowFileIO, WITHOUT_LATE),
}


class IcebergInjector(Injector):
    """Counts the calls to files and to the catalog as well; their errors are not ours."""

    def around(self, name: str, call: Callable[[], Any], half: Callable[[], Any]) -> Any:
        try:
            return super().around(name, call, half)
        except (StorageRefused, StorageError) as error:
            if len(self.calls) - 1 == self.number and "." in name:
                raise ConnectionError("reset") from error
            raise

    @contextmanager
    def active(self) -> Iterator[None]:
        with ExitStack() as patches:
            for name in (*FAULTS_OF, *READS):
                patches.enter_context(mock.patch.object(LogStore, name, self._patched(name)))
            for name, (owner, _) in CALLS.items():
                patches.enter_context(mock.patch.object(owner, name, self._foreign(owner, name)))
            yield

    def _foreign(self, owner: type, name: str) -> Callable[..., Any]:
        original = getattr(owner, name)

        def patched(*words: Any, **more: Any) -> Any:
            return self.around(f"iceberg.{name}", partial(original, *words, **more), lambda: None)

        return patched


class Shop:
    """An Iceberg table that one operation changes again and again, and what it must hold."""

    good: int | None
    """The snapshot to restore."""
    seen: set[int]
    """The numbers in the table before an operation, which are read outside of it: its reads may fail."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place, self.number, self.good = spark, place, 0, None
        self.seen: set[int] = set()

    @property
    def words(self) -> dict[str, Any]:
        return {"catalog": str(self.place / "c.db"), "spark": self.spark}

    def source(self, number: int) -> str:
        path = self.place / f"{number}.jsonl"
        if not path.exists():  # a load that is repeated finds the same file
            path.write_text(json.dumps({"n": number, f"f{number % 5}": number if number % 2 else str(number)}) + "\n")
        return str(path)

    def ingest_txn(self, number: int) -> None:
        ingest(self.source(number), NAME, txn=("loader", number), **self.words)

    def ingest_new(self, number: int) -> None:
        ingest(self.source(number), NAME, new=True, **self.words)

    def frame(self, *numbers: int) -> DataFrame:
        """Return rows with these numbers, which Spark has in its plan, so that to collect them takes no job."""
        values = ", ".join(f"({number})" for number in numbers)
        return self.spark.sql(f"SELECT n FROM VALUES {values} AS t(n)")

    def append(self, number: int) -> None:
        if number not in self.seen:
            self.table.append(self.frame(number))

    def overwrite(self, number: int) -> None:
        self.table.overwrite(self.frame(*range(number + 1)), where="n >= 0")

    def load_high(self, number: int) -> None:
        """Load a row, and one whose number is too high."""
        self.ingest_txn(number)
        self.append(HIGH + number)

    def double(self, number: int) -> None:
        """Load a row twice, in a partition of its own."""
        if "n" not in self.table.partition_by:
            self.table.change_partitioning(add=["n"])
        self.ingest_txn(number)
        self.table.append(self.frame(number))

    def overwrite_partition(self, number: int) -> None:
        self.table.overwrite(self.frame(number), where=f"n = {number}")

    def delete(self, _: int) -> None:
        self.table.delete(f"n >= {HIGH}", spark=self.spark)

    def load_high_only(self, number: int) -> None:
        self.append(HIGH + number)

    def update(self, _: int) -> None:
        self.table.update({"n": f"n - {HIGH}"}, f"n >= {HIGH}", spark=self.spark)

    def merge(self, number: int) -> None:
        source = self.frame(number, HIGH + number)
        builder = self.table.merge(source, "t.n = s.n").when_matched_delete(condition=f"s.n >= {HIGH}")
        builder.when_not_matched_insert({"n": "s.n"}, condition=f"s.n < {HIGH}").execute()

    def add_column(self, number: int) -> None:
        if f"c{number}" not in self.table.schema.names:
            self.table.add_columns({f"c{number}": "int"})

    def optimize(self, _: int) -> None:
        self.table.optimize(spark=self.spark)

    def partition(self, number: int) -> None:
        """Load a row, and give the table a partition field that its files do not have."""
        self.ingest_txn(number)
        self.table.change_partitioning(add=[f"bucket({number + 1}, n)"], drop=self.table.partition_by)

    def rewrite(self, _: int) -> None:
        self.table.rewrite(spark=self.spark)

    def spec(self, number: int) -> None:
        fields = [f"bucket({number + 1}, n)"]
        if list(self.table.partition_by) != fields:
            self.table.change_partitioning(add=fields, drop=self.table.partition_by)

    def replace_tagged(self, number: int) -> None:
        """Load a row, keep it by a tag, replace all files of the main branch, and leave one that no snapshot has."""
        self.ingest_txn(number)
        if "kept" in {each.name for each in self.table.references}:
            self.table.drop_tag("kept")
        self.table.create_tag("kept")
        self.overwrite(number)
        folder = Path(self.table.location.removeprefix("file://")) / "data"
        (folder / "orphan.parquet").write_bytes(b"PAR1")
        os.utime(folder / "orphan.parquet", (0, 0))

    def vacuum(self, _: int) -> None:
        self.table.vacuum(0, keep_last=1, force=True)

    def load_too_much(self, number: int) -> None:
        """Load a row that belongs there, and one that does not."""
        self.ingest_txn(number)
        self.good = self.table.version
        self.ingest_new(1000 + number)

    def restore(self, _: int) -> None:
        self.table.restore(self.good)

    def load_branch(self, number: int) -> None:
        if "audit" in {each.name for each in self.table.references}:
            self.table.drop_branch("audit")
        self.table.create_branch("audit")
        ingest(self.source(number), NAME, branch="audit", **self.words)

    def create_branch(self, number: int) -> None:
        if f"b{number}" not in {each.name for each in self.table.references}:
            self.table.create_branch(f"b{number}")

    def drop_branch(self, number: int) -> None:
        if f"b{number}" in {each.name for each in self.table.references}:
            self.table.drop_branch(f"b{number}")

    def load_and_branch(self, number: int) -> None:
        self.ingest_txn(number)
        self.create_branch(number)

    def publish(self, _: int) -> None:
        self.table.fast_forward("main", "audit")

    def tag(self, number: int) -> None:
        if f"t{number}" not in {each.name for each in self.table.references}:
            self.table.create_tag(f"t{number}")

    def sort(self, number: int) -> None:
        self.table.set_sort_order("n" if number % 2 else "n DESC")

    @property
    def table(self) -> IcebergTable:
        return IcebergTable(NAME, self.words["catalog"])

    def newest(self) -> str:
        """The newest metadata file, which every commit replaces, and the newest snapshot."""
        return str(to_table_name(NAME, self.words["catalog"]).load().metadata_location)

    def numbers(self, reference: str = "main") -> list[int]:
        """What PyIceberg reads in a branch or a tag."""
        scan = to_table_name(NAME, self.words["catalog"]).load().scan(selected_fields=("n",))
        rows = scan.use_ref(reference).to_arrow()
        return sorted(rows["n"].to_pylist())

    def kept(self) -> dict[str, list[int]]:
        """What is in the newest branches and tags, for an operation that must not change them."""
        names = [each.name for each in self.table.references if each.name != "main"]
        return {name: self.numbers(name) for name in names[-NEWEST:]}


OPERATIONS = {
    "ingest with txn": Shop.ingest_txn,
    "ingest new files": Shop.ingest_new,
    "append": Shop.append,
    "overwrite": Shop.overwrite,
    "overwrite a partition": Shop.overwrite_partition,
    "delete": Shop.delete,
    "update": Shop.update,
    "merge": Shop.merge,
    "add column": Shop.add_column,
    "optimize": Shop.optimize,
    "rewrite": Shop.rewrite,
    "vacuum": Shop.vacuum,
    "restore": Shop.restore,
    "publish a branch": Shop.publish,
    "tag": Shop.tag,
    "sort order": Shop.sort,
    "partition fields": Shop.spec,
    "create a branch": Shop.create_branch,
    "drop a branch": Shop.drop_branch,
}
PREPARED = {
    "overwrite a partition": Shop.double,
    "delete": Shop.load_high,
    "update": Shop.load_high_only,
    "merge": Shop.load_high_only,
    "optimize": Shop.ingest_txn,
    "rewrite": Shop.partition,
    "add column": Shop.ingest_txn,
    "vacuum": Shop.replace_tagged,
    "restore": Shop.load_too_much,
    "publish a branch": Shop.load_branch,
    "tag": Shop.ingest_txn,
    "sort order": Shop.ingest_txn,
    "partition fields": Shop.ingest_txn,
    "create a branch": Shop.ingest_txn,
    "drop a branch": Shop.load_and_branch,
}
"""What happens before an operation, without a fault."""
KEEPING = ("vacuum", "optimize", "overwrite", "tag", "restore", "create a branch")
"""The operations that must leave branches and tags as they are."""
