"""Commands: what a user asks of a table, as the actions of one metadata-only commit.

Every command takes the state that was read and gives a `Change`, or None if there is nothing to do.

Source: spec of ALTER TABLE in Delta Lake: the order of the checks, the errors and the provenance.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from widen.errors import ColumnNotFound, FeatureRequired, InvalidOption
from widen.model.path import Path, fields, format_path, leaves, parse_path, resolve
from widen.model.schema import from_json, to_json, type_to_value
from widen.model.type import DataType, Field, StructType, is_atomic
from widen.planning.apply import apply
from widen.planning.operation import AddColumn, Operation
from widen.protocol import mapping
from widen.protocol.action import Metadata, Protocol
from widen.protocol.feature import features, find_feature, is_supported, required_features, stored_properties, upgraded
from widen.protocol.type_change import record_all

ENABLE_TYPE_WIDENING = "delta.enableTypeWidening"
TYPE_WIDENING, PREVIEW = "typeWidening", "typeWidening-preview"


@dataclass(frozen=True)
class State:
    """What a command is judged by.

    Args:
        version: The version that was read.
        protocol: Of that version.
        metadata: Likewise.
    """

    version: int
    protocol: Protocol
    metadata: Metadata

    @cached_property
    def schema(self) -> StructType:
        """The schema with all metadata of its columns."""
        return from_json(self.metadata.schema_string)

    @property
    def properties(self) -> Mapping[str, str]:
        """The configuration of the table."""
        return self.metadata.configuration

    def with_schema(self, schema: StructType) -> State:
        """Return the same state with another schema."""
        return replace(self, metadata=msgspec.structs.replace(self.metadata, schema_string=to_json(schema)))


@dataclass(frozen=True, slots=True)
class Change:
    """One commit that changes no data.

    Args:
        actions: What it says.
        operation: Its name in the history.
        parameters: What the history says of it.
    """

    actions: tuple[Metadata | Protocol, ...]
    operation: str
    parameters: Mapping[str, object]


# ---- schema ----------------------------------------------------------------------------------------


def with_operations(state: State, operations: Sequence[Operation]) -> Metadata:
    """Return the metadata after operations on columns: types recorded, ids and physical names given.

    Args:
        state: What was read.
        operations: In their order; the caller has judged them.

    Raises:
        FeatureRequired: a new type needs a feature that the table does not have.
        ColumnNotFound: an operation names a column that is not there.

    Source: PROTOCOL.md#type-change-metadata, #writer-requirements-for-column-mapping
    """
    changed = apply(state.schema, operations)
    version = state.version + 1 if is_supported(state.protocol, PREVIEW) else None
    changed = record_all(state.schema, changed, version)
    _ensure_types(state, changed)
    return with_schema(state, changed)


def with_schema(state: State, schema: StructType) -> Metadata:
    """Return the metadata with another schema, whose new columns get ids where the table maps columns."""
    configuration = dict(state.properties)
    if mapping.mapping_mode(configuration, state.protocol) != mapping.NONE:
        last = mapping.max_column_id(schema, configuration)
        schema, last = mapping.assign(schema, last, new_physical_name)
        configuration[mapping.MAX_COLUMN_ID] = str(last)
    return msgspec.structs.replace(state.metadata, schema_string=to_json(schema), configuration=configuration)


def new_physical_name(_: Field) -> str:
    """Return a physical name that no column ever had.

    Source: PROTOCOL.md#writer-requirements-for-column-mapping
    """
    return f"col-{uuid.uuid4()}"


def _ensure_types(state: State, schema: StructType) -> None:
    used = {str(leaf) for _, leaf in leaves(schema)} - {str(leaf) for _, leaf in leaves(state.schema)}
    for feature in sorted(required_features({}, _columns_of(used, schema)) - features(state.protocol)):
        raise FeatureRequired(feature=feature, supported=", ".join(sorted(features(state.protocol))))


def _columns_of(types: set[str], schema: StructType) -> StructType:
    return StructType(tuple(Field(str(leaf), leaf) for _, leaf in leaves(schema) if str(leaf) in types))


def add_columns(state: State, columns: Mapping[str, DataType]) -> Change | None:
    """Return the commit that adds columns or nested fields, or None if none are given.

    Args:
        state: What was read.
        columns: The type of each new column by its path, e.g. ``{"a": …, "s.b": …, "list.element.c": …}``.

    Raises:
        InvalidOption: there is a column of that name.
        InvalidPath: a path cannot be read.
        ColumnNotFound: the struct that a path names is not there.
        FeatureRequired: a type needs a feature that the table does not have.

    Source: Delta Lake's ADD COLUMNS.
    """
    operations = [_addition(state.schema, parse_path(path), data_type) for path, data_type in columns.items()]
    if not operations:
        return None
    ensure_names([operation.field for operation in operations], state.properties)
    described = [
        {"column": type_to_value(StructType((replace(o.field, name=format_path(o.path)),)))["fields"][0]}
        for o in operations
    ]
    metadata = with_operations(state, operations)
    return Change((metadata,), "ADD COLUMNS", {"columns": described})


def _addition(schema: StructType, path: Path, data_type: DataType) -> AddColumn:
    parent, struct = resolve(schema, path[:-1])
    if not isinstance(struct, StructType):
        raise ColumnNotFound(column=format_path(path), available=f"no fields: {format_path(parent)} is no struct")
    if struct.find(path[-1]) is not None:
        raise InvalidOption(option="add_columns", value=format_path(path), expected="There is such a column already.")
    return AddColumn(parent, Field(path[-1], data_type))


def ensure_names(new: Iterable[Field], properties: Mapping[str, str]) -> None:
    """Check that names can stand in files: without column mapping some characters cannot.

    Raises:
        InvalidOption: a name has one of them.

    Source: Delta Spark: DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES.
    """
    if properties.get(mapping.MODE, mapping.NONE) != mapping.NONE:
        return
    for _, field in fields(StructType(tuple(new))):
        if not field.name or any(char in _FORBIDDEN for char in field.name):
            expected = f"Names have none of ' ,;{{}}()\\n\\t=' unless {mapping.MODE} is name."
            raise InvalidOption(option="a column name", value=field.name, expected=expected)


_FORBIDDEN = frozenset(" ,;{}()\n\t=")


# ---- properties and features -----------------------------------------------------------------------


def set_properties(state: State, properties: Mapping[str, str]) -> Change | None:
    """Return the commit that sets properties and adds the features that they ask for, or None if nothing changes.

    Raises:
        InvalidOption: a value cannot be used.

    Source: PROTOCOL.md#table-features; Delta Spark for the features that properties add.
    """
    ensure_properties(properties)
    protocol = upgraded(state.protocol, required_features(properties))
    configuration = {**state.properties, **stored_properties(properties)}
    metadata = msgspec.structs.replace(state.metadata, configuration=configuration)
    if configuration.get(mapping.MODE, mapping.NONE) != state.properties.get(mapping.MODE, mapping.NONE):
        metadata = _mapped(state, metadata)
    return _change(state, protocol, metadata, "SET TBLPROPERTIES", {"properties": dict(properties)})


def _mapped(state: State, metadata: Metadata) -> Metadata:
    """Return the metadata of a table that begins to map its columns: every name is its own physical name."""
    wanted = metadata.configuration.get(mapping.MODE, mapping.NONE)
    before = state.properties.get(mapping.MODE, mapping.NONE)
    if (before, wanted) != (mapping.NONE, mapping.NAME):
        expected = f"It is {before}; only from none to name can it be changed."
        raise InvalidOption(option=mapping.MODE, value=wanted, expected=expected)
    schema, last = mapping.assign(state.schema, mapping.max_column_id(state.schema, state.properties), _own_name)
    configuration = {**metadata.configuration, mapping.MAX_COLUMN_ID: str(last)}
    return msgspec.structs.replace(metadata, schema_string=to_json(schema), configuration=configuration)


def _own_name(field: Field) -> str:
    return field.name


def unset_properties(state: State, keys: Iterable[str]) -> Change | None:
    """Return the commit that removes properties, or None if none of them is set; features stay.

    Raises:
        InvalidOption: a property cannot be removed.
    """
    gone = list(keys)
    if state.properties.get(mapping.MODE, mapping.NONE) != mapping.NONE and mapping.MODE in gone:
        raise InvalidOption(option=mapping.MODE, value=None, expected="Column mapping cannot be switched off.")
    configuration = {key: value for key, value in state.properties.items() if key not in gone}
    metadata = msgspec.structs.replace(state.metadata, configuration=configuration)
    parameters = {"properties": gone, "ifExists": True}
    return _change(state, state.protocol, metadata, "UNSET TBLPROPERTIES", parameters)


def add_feature(state: State, name: str) -> Change | None:
    """Return the commit that adds a table feature with what it requires, or None if it is supported already.

    Raises:
        InvalidOption: this version knows no such feature.

    Source: PROTOCOL.md#table-features
    """
    known = find_feature(name)
    if known is None:
        raise InvalidOption(option="feature", value=name, expected="This version of Widen does not know it.")
    protocol = upgraded(state.protocol, [known.name])
    parameters = {"properties": {f"delta.feature.{known.name}": "supported"}}
    return _change(state, protocol, state.metadata, "SET TBLPROPERTIES", parameters)


def _change(
    state: State, protocol: Protocol, metadata: Metadata, operation: str, parameters: Mapping[str, object]
) -> Change | None:
    actions: tuple[Metadata | Protocol, ...] = (metadata,) if metadata != state.metadata else ()
    if features(protocol) != features(state.protocol):
        actions = (metadata, protocol)
    return Change(actions, operation, parameters) if actions else None


def ensure_properties(properties: Mapping[str, str]) -> None:
    """Check the values of the properties that this version gives a meaning to.

    Raises:
        InvalidOption: a switch is neither true nor false, or column mapping has an unknown mode.
    """
    mapping.ensure_mode(properties)
    for key, value in properties.items():
        if not isinstance(value, str):
            raise InvalidOption(option=key, value=value, expected="Properties are texts, e.g. 'true'.")
        if key.startswith("delta.enable") and value.lower() not in ("true", "false"):
            raise InvalidOption(option=key, value=value, expected="It is true or false.")


# ---- creation --------------------------------------------------------------------------------------


def create(schema: StructType, partition_by: Sequence[str], properties: Mapping[str, str], now_ms: int) -> Change:
    """Return the first commit of a table.

    Args:
        schema: Its columns.
        partition_by: The columns that its files are split by; they stay columns.
        properties: Its properties, also those that only ask for features.
        now_ms: When it is made, in ms since the epoch.

    Raises:
        InvalidOption: a name, a partition column or a property cannot be used.

    Source: PROTOCOL.md#change-metadata, #protocol-evolution
    """
    ensure_properties(properties)
    ensure_names(schema.fields, properties)
    split = _partition_columns(schema, partition_by)
    protocol = upgraded(_NEW_PROTOCOL, required_features(properties, schema))
    configuration = stored_properties(properties)
    if configuration.get(mapping.MODE, mapping.NONE) != mapping.NONE:
        schema, last = mapping.assign(schema, 0, new_physical_name)
        configuration[mapping.MAX_COLUMN_ID] = str(last)
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=to_json(schema),
        partition_columns=split,
        configuration=configuration,
        created_time=now_ms,
    )
    parameters = {"isManaged": "false", "description": None, "partitionBy": split}
    return Change((metadata, protocol), "CREATE TABLE", {**parameters, "properties": configuration})


_NEW_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)


def _partition_columns(schema: StructType, names: Sequence[str]) -> tuple[str, ...]:
    folded = [field.name.casefold() for field in schema]
    if len(set(folded)) != len(folded):
        raise InvalidOption(option="schema", value=", ".join(schema.names), expected="A column is there twice.")
    found = []
    for name in names:
        field = schema.find(name)
        if field is None:
            raise ColumnNotFound(column=name, available=", ".join(schema.names))
        if not is_atomic(field.type) or str(field.type) in ("void", "variant"):
            raise InvalidOption(
                option="partition_by", value=name, expected=f"Files cannot be split by {field.type.sql}."
            )
        found.append(field.name)
    if found and len(set(found)) == len(schema):
        raise InvalidOption(option="partition_by", value=found, expected="One column at least must stay in the files.")
    return tuple(found)
