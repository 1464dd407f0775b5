"""Check a source against a contract; nothing is written.

Source: docs/guide/gate.md#contract
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from widen.errors import InvalidConfig
from widen.errors.foreign import open_failure
from widen.ingestion.options import check_places, parse_options
from widen.model.argument_types import check_arguments
from widen.observe.contract import ensure_contract
from widen.spark.ingest.open_source import IngestSource
from widen.spark.session import find_session
from widen.spark.source.changed_files import unchanged_files
from widen.spark.spark_types import SparkSession
from widen.spark.text.contract_check import ContractReport


@check_arguments
def check_contract(
    source: IngestSource,
    contract: Mapping[str, Any] | str | PathLike[str],
    *,
    spark: SparkSession | None = None,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    detect_types: bool = False,
    numbers: str | None = None,
) -> ContractReport:
    """Return where the records of a source break a contract.

    The arguments that are not listed are those of `ingest`.

    Args:
        source: Files, directories or patterns; or a DataFrame.
        contract: A JSON Schema as `Table.contract` gives it, or a file with one.
        spark: The session to work in; by default the active one, else a local one.

    Raises:
        InvalidConfig: the file cannot be read, or is not JSON.
        InvalidOption: the contract uses what is not supported.
        SourceError: the source cannot be used.
        CorruptFile: a file of the source cannot be read.
    """
    schema = contract if isinstance(contract, Mapping) else read_contract(contract)
    ensure_contract(schema)
    reader, _ = parse_options(locals())
    check_places(source, None, spark=spark)
    session = find_session(spark)
    batch = reader.open(session, source)
    with unchanged_files(session, batch.files):
        return batch.check_contract(schema)


def read_contract(file: str | PathLike[str]) -> Any:
    """Return the contract in a file.

    Raises:
        InvalidConfig: the file cannot be read, or is not JSON.
    """
    try:
        return msgspec.json.decode(Path(file).read_bytes())
    except msgspec.DecodeError as error:
        raise InvalidConfig(place=str(file), reason=str(error), expected="Must be a JSON Schema.") from error
    except (OSError, ValueError) as error:
        expected = "Must be a file of `widen contract`."
        raise InvalidConfig(place=str(file), reason=open_failure(error), expected=expected) from error
