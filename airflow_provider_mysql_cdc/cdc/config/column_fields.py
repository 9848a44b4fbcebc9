"""Properties that choose, rename, describe and convert columns, narrow the snapshot, and list transforms."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.config import parse_value
from airflow_provider_mysql_cdc.cdc.config.enums import EventContract, NameAdjustmentMode
from airflow_provider_mysql_cdc.cdc.config.event_fields import (
    AVRO_CONVERTER,
    EVENT_CONTRACT,
    KEY_CONVERTER,
    VALUE_CONVERTER,
)
from airflow_provider_mysql_cdc.cdc.config.field import Alias, Field, Group, Lookup, PinScope, SetBy
from airflow_provider_mysql_cdc.cdc.config.parse_value import KeyColumns, Patterns

_PATTERN_HINT = (
    "Comma-separated regular expressions, each for a whole `database.table.column`, ASCII letters without case; "
    "`\\,` is a comma."
)


def _column_patterns(
    name: str, doc: str, *refs: str, aliases: tuple[str, ...] = (), set_by: SetBy = SetBy.AUTHOR
) -> Field[Patterns]:
    return Field(name, parse_value.patterns, Patterns(), doc, Group.COLUMNS, aliases=aliases, refs=refs, set_by=set_by)


COLUMN_INCLUDE_LIST = _column_patterns(
    "column.include.list",
    f"Columns in the values of events; all when empty. Keys keep their columns. {_PATTERN_HINT}",
    "COL-01",
    "COL-02",
    "CFG-15",
    aliases=("column.whitelist",),
)
COLUMN_EXCLUDE_LIST = _column_patterns(
    "column.exclude.list",
    f"Columns left out of the values of events; not together with the include list. Keys keep their columns. "
    f"{_PATTERN_HINT}",
    "COL-01",
    "COL-02",
    "CFG-14",
    aliases=("column.blacklist",),
)
COLUMN_PROPAGATE_SOURCE_TYPE = _column_patterns(
    "column.propagate.source.type",
    "Columns whose field schema in values gets the parameters `__debezium.source.column.type`, `.length`, `.scale`, "
    f"`.name` and, with `include.schema.comments`, `.comment`. {_PATTERN_HINT}",
    "COL-11",
    set_by=SetBy.RUN,
)
DATATYPE_PROPAGATE_SOURCE_TYPE = _column_patterns(
    "datatype.propagate.source.type",
    "As `column.propagate.source.type`, for all columns of a type. Comma-separated regular expressions, each for a "
    "whole `database.table.TYPE`, where the type is written as in `INT UNSIGNED`, without a length.",
    "COL-12",
    set_by=SetBy.RUN,
)
MESSAGE_KEY_COLUMNS: Field[KeyColumns] = Field(
    "message.key.columns",
    parse_value.key_columns,
    KeyColumns(),
    "Key columns by table, `table:column,column;table:column`; table and column are regular expressions. Overrides the "
    "primary key. No rule of this chapter changes the values in a key.",
    Group.COLUMNS,
    refs=("COL-13", "COL-14", "CFG-39"),
)


def _adjustment_mode(value: str) -> str:
    return "avro" if parse_value.boolean(value) else "none"


def _default_field_names(get: Lookup) -> NameAdjustmentMode:
    # Debezium 1.9 (``sanitize.field.names``); since 2.0 the default is none.
    uses_avro = AVRO_CONVERTER in (get[KEY_CONVERTER], get[VALUE_CONVERTER])
    old = get[EVENT_CONTRACT] is EventContract.OLD
    return NameAdjustmentMode.AVRO if old and uses_avro else NameAdjustmentMode.NONE


SCHEMA_NAME_ADJUSTMENT_MODE: Field[NameAdjustmentMode] = Field(
    "schema.name.adjustment.mode",
    parse_value.choice(NameAdjustmentMode),
    NameAdjustmentMode.NONE,
    "How the names of tables' schemas are adjusted to what Avro allows. Topics keep their names. The manuals' samples "
    "of contract 1.9 show names that are not adjusted, against its default.",
    Group.COLUMNS,
    derive=lambda get: NameAdjustmentMode.AVRO if get[EVENT_CONTRACT] is EventContract.OLD else NameAdjustmentMode.NONE,
    derived_from="`avro` with `event.contract=1.9`, else `none`",
    enum=NameAdjustmentMode.docs(),
    refs=("EVT-04", "EVT-06", "COL-16"),
    set_by=SetBy.RUN,
)
FIELD_NAME_ADJUSTMENT_MODE: Field[NameAdjustmentMode] = Field(
    "field.name.adjustment.mode",
    parse_value.choice(NameAdjustmentMode),
    NameAdjustmentMode.NONE,
    "How column names are adjusted to what Avro allows for field names, in values and keys. Two columns of a table "
    "whose names become equal stop the run. `sanitize.field.names=true` is read as `avro`, `false` as `none`.",
    Group.COLUMNS,
    aliases=(Alias("sanitize.field.names", _adjustment_mode),),
    derive=_default_field_names,
    derived_from="`avro` with `event.contract=1.9` and an Avro converter, else `none`",
    enum=NameAdjustmentMode.docs(),
    refs=("COL-15",),
    set_by=SetBy.RUN,
)
CONVERTERS: Field[tuple[str, ...]] = Field(
    "converters",
    lambda value: tuple(filter(None, map(str.strip, value.split(",")))),
    (),
    "Names of converters; of several for a column the first counts. Each has `<name>.type`, which is "
    "`io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter` or a Python class of your own. The former "
    "makes TINYINT(1) columns booleans, true above zero: `<name>.selector` is a list of regular expressions for "
    "`database.table.column` (all when absent); `<name>.length.checker=false` takes TINYINT of any display width. The "
    "latter is a dotted path `package.module.Class` and gets all other properties `<name>.*`: see "
    "[custom converters](custom-converters.md). Other classes of Java are refused.",
    Group.COLUMNS,
    refs=("TYPE-62", "TYPE-63", "TYPE-64", "TYPE-65"),
)
SNAPSHOT_INCLUDE_COLLECTION_LIST: Field[Patterns] = Field(
    "snapshot.include.collection.list",
    parse_value.patterns,
    Patterns(),
    "Captured tables (`database.table`) whose rows the snapshot reads; all when empty. The structure of the others is "
    "recorded, and their changes are captured. Comma-separated regular expressions for the whole name.",
    Group.SNAPSHOT,
    refs=("SNAP-49",),
    pin_scope=PinScope.SNAPSHOT,
    set_by=SetBy.RUN,
)
SNAPSHOT_SELECT_STATEMENT_OVERRIDES: Field[tuple[str, ...]] = Field(
    "snapshot.select.statement.overrides",
    lambda value: tuple(filter(None, map(str.strip, value.split(",")))),
    (),
    "Tables (`database.table`) whose rows the snapshot reads with a statement of your own; "
    "`snapshot.select.statement.overrides.<database>.<table>` holds the SELECT. Such a table is read by one task. "
    "Nullable columns that the statement does not give are NULL.",
    Group.SNAPSHOT,
    refs=("SNAP-50", "SNAP-51"),
    pin_scope=PinScope.SNAPSHOT,
)


TRANSFORMS: Field[tuple[str, ...]] = Field(
    "transforms",
    lambda value: tuple(filter(None, map(str.strip, value.split(",")))),
    (),
    "Names of Kafka Connect's single message transforms, in their order. Each has `transforms.<name>.type`, one of the "
    "classes in the chapter *Transforms*. They act on the topics of tables, schema changes, transaction metadata, "
    "heartbeats and notifications, not on the schema history, the ledger and dead letters. Those that only rename "
    "topics cost nothing; any others are applied to each record, as Kafka Connect does, by one writer and at some "
    "thousand records a second. Tables that share a topic keep the order of the binlog in each partition; the rows "
    "of a snapshot do so for each table alone. A record that a transform cannot take stops the stream. Scripts are "
    "refused.",
    Group.TOPICS,
    refs=("TOPIC-05", "SNAP-41", "EX-38"),
)
PREDICATES: Field[tuple[str, ...]] = Field(
    "predicates",
    lambda value: tuple(filter(None, map(str.strip, value.split(",")))),
    (),
    "Names of Kafka Connect's predicates. Each has `predicates.<name>.type`, one of the classes in the chapter "
    "*Transforms*. A transform with a `predicate` applies only to records that it selects, or with `negate=true` only "
    "to the others.",
    Group.TOPICS,
)
