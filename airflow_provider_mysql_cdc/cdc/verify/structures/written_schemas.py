"""Tell the schemas that the stream may have written with the records of one table from those that it never writes.

Records may be older than a property, so all modes and contracts count, and all structures that the table has had. What
counts is what a consumer gets that reads by the schema: names, types, and whether null is allowed; not comments,
defaults, or parameters that say where a column comes from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro.connect_avro import avro_schema
from airflow_provider_mysql_cdc.cdc.config import enums
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.connect_schema import ConnectSchema, field_schema
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.emit.contracts import CONTRACTS
from airflow_provider_mysql_cdc.cdc.emit.envelope import schema_name
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import TicdcModes, key_schema, value_schema
from airflow_provider_mysql_cdc.cdc.verify.read.avro_events import readable_schema
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    DECIMAL,
    Forms,
    NamedForms,
    SchemaForms,
    UnreadableRecord,
    ValueForm,
)

_ROWS = ("before", "after")
_REQUIRED = {*_ROWS, "source", "op"}
_KEY_MEMBERS = {"type", "fields", "optional", "name"}
_SOURCE_PARAMETERS = "__debezium.source."
_MODES: Mapping[str, Iterable[str]] = {
    "decimal_mode": enums.DecimalHandlingMode,
    "bigint_unsigned_mode": enums.BigIntUnsignedHandlingMode,
    "binary_mode": enums.BinaryHandlingMode,
    "time_mode": enums.TimePrecisionMode,
}


class WrittenSchemas:
    """Judge the schemas of one table's records.

    Args:
        tables: All structures that the table has had.
    """

    def __init__(self, cfg: ConnectorConfig, tables: Sequence[Table]) -> None:
        self._cfg, self._tables = cfg, tables
        self._known: dict[tuple[str, bool], Forms] = {}
        self._schemas: dict[str, list[Any]] = {}
        self._forms: dict[str, set[ValueForm]] = {}
        self._names: dict[str, set[str]] = {"Key": set(), "Envelope": set()}
        self._key_fields: dict[str, list[ConnectSchema]] = {}
        self._comments = {None, *(column.comment for table in tables for column in table.columns)}

    def require(self, part: str, forms: Forms | None, *, with_columns: bool = True) -> None:
        """Check the schema of a key or value.

        Args:
            part: ``key`` or ``value``.
            forms: What it says of the fields; None if the record has none.
            with_columns: Whether it is known which columns the table had then.

        Raises:
            UnreadableRecord: The stream never writes such a schema for the table.
        """
        if forms is None or self._known.get((part, with_columns)) is forms:
            return
        if isinstance(forms, SchemaForms):
            if not self._schemas:
                self._add_schemas()
            try:
                if part == "key":
                    self._require_key(forms.schema)
                else:
                    self._require_envelope(forms.schema, with_columns=with_columns)
            except (KeyError, TypeError, AttributeError) as error:
                raise UnreadableRecord(f"the schema of the {part} is none of Connect's ({error!r})") from error
        elif with_columns:
            if not self._forms:
                self._add_forms()
            if part == "value" and isinstance(forms, NamedForms):
                _require(self._names_event(forms.name), part, "", forms.name)
            for name, form in forms.items():
                _require(form in self._forms.get(name, (form,)), part, name, f"{form.type} {form.name}")
        self._known[part, with_columns] = forms

    def _require_key(self, schema: Mapping[str, Any]) -> None:
        _require(schema.get("type") == "struct" and not schema.get("optional"), "key", "", schema.get("type"))
        _require(schema.get("name") in self._names["Key"], "key", "", schema.get("name"))
        _require(schema.keys() == _KEY_MEMBERS, "key", "", sorted(schema))
        for field in schema["fields"]:  # a key is its bytes, also those of its schema
            name = str(field["field"])
            if name in self._key_fields:  # others are of a router, or from before a history that was recorded anew
                own = map(_without_texts, self._key_fields[name])
                _require(_without_texts(field) in own, "key", name, field.get("type"))
            _require(field.get("doc") in self._comments, "key", name, field.get("doc"))

    def _require_envelope(self, schema: Mapping[str, Any], *, with_columns: bool) -> None:
        fields = {str(field["field"]): field for field in schema["fields"]}
        _require(fields.keys() >= _REQUIRED and len(fields) == len(schema["fields"]), "value", "", sorted(fields))
        _require(self._names_event(str(schema.get("name"))), "value", "", schema.get("name"))
        for name, field in fields.items():
            bare = _bare(field)
            if name == "source":
                for member in field["fields"]:
                    _require(_bare(member) in _SOURCE_MEMBERS, "value", member["field"], member.get("type"))
            elif name not in _ROWS:
                _require(bare in _TAIL_MEMBERS, "value", name, field.get("type"))
        before, after = (_bare({**fields[name], "field": None}) for name in _ROWS)
        _require(before == after and after["type"] == "struct" and after["optional"], "value", "after", "")
        for column in fields["after"]["fields"] if with_columns else ():
            bare = _bare(column)
            _require(bare in self._schemas.get(bare["field"], (bare,)), "value", column["field"], column.get("type"))

    def _names_event(self, name: str) -> bool:
        """Return whether a schema of that name may be the event's; one that a former transform gave has no prefix."""
        is_given = name.endswith("Envelope") and not name.startswith(f"{self._cfg.topic_prefix}.")
        return name in self._names["Envelope"] or (is_given and not self._cfg.is_ticdc)

    def _add_schemas(self) -> None:
        self._add_names()
        for fields in self._possible_fields():
            for field in fields:
                for known, form in ((self._schemas, _bare(field)), (self._key_fields, field)):
                    if form not in (forms := known.setdefault(field["field"], [])):
                        forms.append(form)

    def _add_names(self) -> None:
        for table, contract, mode in product(self._tables, enums.EventContract, enums.NameAdjustmentMode):
            options = table_options.table_options(self._cfg, table)
            # Records may be older than a router.
            for titles, (part, names) in product((options.schema_titles, ()), self._names.items()):
                variant = replace(options, contract=str(contract), schema_names=str(mode), schema_titles=titles)
                names.add(schema_name(table, variant, part))

    def _add_forms(self) -> None:
        if not self._cfg.is_ticdc:
            self._add_names()
        for forms in self._possible_ticdc_forms() if self._cfg.is_ticdc else self._possible_avro_forms():
            if self._cfg.is_ticdc and isinstance(forms, NamedForms):
                self._names["Envelope"].add(forms.name)
            for name, form in forms.items():
                self._forms.setdefault(name, set()).add(form)

    def _possible_fields(self) -> Iterator[list[ConnectSchema]]:
        for table in self._tables:
            with suppress(SchemaError):  # of such a structure there is no record
                options = table_options.table_options(self._cfg, table)
                columns = _record_columns(table, options)
                for variant in _possible_options(table, options):
                    with suppress(SchemaError):
                        yield [field_schema(c, variant, names=options.field_names) for c in columns]

    def _possible_avro_forms(self) -> Iterator[Forms]:
        for fields, meta in product(self._possible_fields(), (True, False)):
            struct: ConnectSchema = {"type": "struct", "fields": fields, "optional": False, "name": "a.Value"}
            with suppress(SchemaError, ValueError):
                yield readable_schema(dumps(avro_schema(json.loads(dumps(struct)), meta=meta))).forms

    def _possible_ticdc_forms(self) -> Iterator[Forms]:
        modes = product(enums.TicdcDecimalMode, enums.TicdcBigintUnsignedMode)
        for table, (decimal, bigint) in product(self._tables, modes):
            options = table_options.table_options(self._cfg, table)
            keys, values = key_columns(table, options), value_columns(table, options)
            for build, columns in ((key_schema, keys), (value_schema, values)):
                with suppress(SchemaError, ValueError):
                    text = build(table, columns, TicdcModes(str(decimal), str(bigint)))
                    if text is not None:
                        yield readable_schema(text).forms


def _record_columns(table: Table, options: DecoderOptions) -> list[Column]:
    return list({c.name: c for c in (*value_columns(table, options), *key_columns(table, options))}.values())


def _possible_options(table: Table, options: DecoderOptions) -> Iterator[DecoderOptions]:
    """Yield options under which records of a table may have been written; one mode decides about a column."""
    tinyints = frozenset(column.name for column in table.columns if column.type_name == "TINYINT")
    bases = (options, *(replace(options, conversions=(), booleans=names) for names in (frozenset[str](), tinyints)))
    for base, version in product(bases, enums.EventContract):
        for name, modes in _MODES.items():
            for mode in modes:
                yield replace(base, contract=str(version), **{name: str(mode)})  # type: ignore[arg-type]


def _bare(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a Connect schema decides what a consumer gets."""
    bare: dict[str, Any] = {name: schema.get(name) for name in ("type", "name", "field")}
    bare["optional"] = bool(schema.get("optional"))
    bare["has_default"] = schema.get("default") is not None  # consumers may take it for null
    if schema.get("name") == DECIMAL:
        bare["scale"] = schema.get("parameters", {}).get("scale")
    if "fields" in schema:
        bare["fields"] = {field["field"]: _bare(field) for field in schema["fields"]}
        if len(bare["fields"]) != len(schema["fields"]):
            raise TypeError("it names a field twice")
    if "items" in schema:
        bare["items"] = _bare(schema["items"])
    return bare


def _without_texts(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a key's field without what is compared otherwise, or may change without a statement."""
    bare = {name: value for name, value in json.loads(dumps(schema)).items() if name not in ("doc", "default")}
    sources = [name for name in bare.get("parameters", ()) if name.startswith(_SOURCE_PARAMETERS)]
    rest = {name: value for name, value in bare.get("parameters", {}).items() if name not in sources}
    return bare | {"parameters": rest, "has_default": schema.get("default") is not None}


def _require(holds: bool, part: str, name: Any, found: Any) -> None:
    if not holds:
        where = f"field {name} " if name else ""
        raise UnreadableRecord(f"the schema of the {part} is none that the stream writes: {where}({found})")


_SOURCE_MEMBERS = [_bare(member.to_schema()) for layout in CONTRACTS.values() for member in layout.source]
_TAIL_MEMBERS = [
    _bare(member.to_schema()) for layout in CONTRACTS.values() for member in (*layout.tail, layout.transaction)
]
