"""Read and apply the table structures of a signal, in the format that Debezium's schema history has for table changes.

Properties that the format does not have (collations, unique indexes, generated columns) are kept from the current
structure if the column or key is unchanged. Source: Debezium 3.6.1, ``JsonTableChangeSerializer.deserialize``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.ddl.apply import ChangeKind, TableChange
from airflow_provider_mysql_cdc.cdc.ddl.collations import charset_name, default_collation
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.ddl.statements import Default, DefaultKind
from airflow_provider_mysql_cdc.cdc.ddl.stored_defaults import stored_default
from airflow_provider_mysql_cdc.cdc.emit.schema_change import change_dict, column_dict
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, MySqlType, mysql_type, type_words
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId, folded_name

MAX_COLUMNS = 4096
"""Most columns of a MySQL table."""
MAX_CHANGE_BYTES = 512 * 1024
"""Most bytes of a change in the schema change topic, without its Connect schema; brokers accept records of 1 MiB."""
_MAX_NAME = 64
_CHANGE_KINDS: dict[str, ChangeKind] = {"CREATE": "CREATE", "ALTER": "ALTER", "DROP": "DROP"}
_QUALIFIED_NAME = re.compile(r'(?:"((?:[^"]|"")+)"|([^".]+))\.(?:"((?:[^"]|"")+)"|([^".]+))')
_BIT_LITERAL = re.compile(r"[01]+")
_MAX_FLOAT_BITS = 24  # bits of a FLOAT's precision; above that it is a DOUBLE


@dataclass(frozen=True, slots=True)
class SignalTableChange:
    """Hold one table change of a signal.

    Args:
        kind: ``CREATE``, ``ALTER`` or ``DROP``.
        id: The table.
        previous_id: Its previous name, or None.
        table: Its structure, as far as the signal describes it; None when it is dropped.
        raw: The change as it is in the signal.
    """

    kind: ChangeKind
    id: TableId
    previous_id: TableId | None
    table: Table | None
    raw: Mapping[str, Any]

    def apply(self, state: SchemaState) -> tuple[SchemaState, TableChange]:
        """Return the structures after the change, and its effect.

        Args:
            state: Structures before it.
        """
        current = state.tables.get(self.previous_id or self.id)
        plain_keys = state.non_unique_indexes.get(self.previous_id or self.id, ())
        table = None if self.table is None else _merge_table(self.table, current)
        state = state.without_tables(*(t for t in (self.id, self.previous_id) if t is not None))
        if table is not None:
            state = state.with_table(table, plain_keys)
        kind: ChangeKind = "RENAME" if self.previous_id is not None and self.kind == "ALTER" else self.kind
        return state, TableChange(kind, self.id, self.previous_id, table, "", self.id.db)


def apply_all(state: SchemaState, changes: Sequence[SignalTableChange]) -> tuple[SchemaState, tuple[TableChange, ...]]:
    """Return the structures after all changes, and the effect of each.

    Args:
        state: Structures before them.
        changes: The changes, in their order.
    """
    table_changes = []
    for change in changes:
        state, applied = change.apply(state)
        table_changes.append(applied)
    return state, tuple(table_changes)


def read_table_change(members: Members, db: str = "") -> SignalTableChange:
    """Read one table change.

    Args:
        members: Its members.
        db: The database that the table must belong to; empty for any.

    Raises:
        DamagedRecordError: It is not a valid table change; the error names the member.
    """
    kind = _CHANGE_KINDS[members.one_of("type", tuple(_CHANGE_KINDS))]
    table_id = _read_table_id(members, "id")
    if db and table_id.db != db:
        raise members.member_error("id", f'a table of database {db}, as in "{db}"."table"')
    previous_id = None if members.value("previousId", None) is None else _read_table_id(members, "previousId")
    table = None if kind == "DROP" else _read_table(table_id, members.object("table"))
    change = SignalTableChange(kind, table_id, previous_id, table, members.as_dict())
    change_json = change_dict(change.apply(SchemaState())[1], comments=True)
    if (size := len(json.dumps(change_json).encode())) > MAX_CHANGE_BYTES:
        raise members.member_error("table", f"described in at most {MAX_CHANGE_BYTES} bytes (it takes {size})")
    return change


def _read_table_id(members: Members, name: str) -> TableId:
    match = _QUALIFIED_NAME.fullmatch(members.text(name).strip())
    if match is None:
        raise members.member_error(name, 'the name of a table, as in "database"."table"')
    quoted_db, db, quoted_table, table = match.groups()
    names = [plain or quoted.replace('""', '"') for quoted, plain in ((quoted_db, db), (quoted_table, table))]
    if any(len(part) > _MAX_NAME for part in names):
        raise members.member_error(name, f"a name whose parts have at most {_MAX_NAME} characters")
    return TableId(*names)


def _read_table(table_id: TableId, members: Members) -> Table:
    default_charset = _read_charset(members, "defaultCharsetName")
    column_list = members.objects("columns")
    if not 0 < len(column_list) <= MAX_COLUMNS:
        raise members.member_error("columns", f"a list of 1 to {MAX_COLUMNS} columns")
    columns = sorted(
        (_read_column(c, number, default_charset) for number, c in enumerate(column_list, 1)), key=lambda c: c.position
    )
    if [c.position for c in columns] != list(range(1, len(columns) + 1)):
        raise members.member_error("columns", "numbered from 1 by their positions, without gaps")
    if len({folded_name(c.name) for c in columns}) < len(columns):
        raise members.member_error("columns", "of names that differ")
    table = Table(
        table_id,
        tuple(columns),
        charset=default_charset,
        comment=members.text_or_none("comment"),
        declared_charset=_declared_charset(members, "defaultCharsetName", default_charset),
    )
    if default_charset is not None:
        table = replace(table, collation=default_collation(default_charset))
    keys = members.values("primaryKeyColumnNames") if members.value("primaryKeyColumnNames", None) is not None else []
    key_columns = [table.column(key) if isinstance(key, str) else None for key in keys]
    names = tuple(c.name for c in key_columns if c is not None)
    if len(set(names)) < len(keys):
        raise members.member_error("primaryKeyColumnNames", "names of columns, each of them once")
    return replace(table, primary_key=names)


def _read_column(members: Members, number: int, default_charset: str | None) -> Column:
    name = members.text("name")
    if not 0 < len(name) <= _MAX_NAME:
        raise members.member_error("name", f"a string of 1 to {_MAX_NAME} characters")
    type_text = " ".join(members.text("typeName").upper().split())
    zerofill = type_text.endswith(" ZEROFILL")
    declared = type_text.removesuffix(" ZEROFILL")
    unsigned = declared.endswith(" UNSIGNED") or zerofill
    declared = declared.removesuffix(" UNSIGNED").removesuffix(" SIGNED")
    words = type_words(declared)
    if words is None:
        raise members.member_error("typeName", "a type of MySQL, without its length")
    base = mysql_type(words.type_name)
    length, scale = _read_length(members, declared, base)
    if base.name == "FLOAT" and scale is None and length is not None and length > _MAX_FLOAT_BITS:
        base = mysql_type("DOUBLE")
    charset = (_read_charset(members, "charsetName") or default_charset) if base.collated else None
    if base.collated and charset is None:
        raise members.member_error("charsetName", "a character set, because the table has no default")
    auto_incremented = members.flag("autoIncremented", False)
    nullable = members.flag("optional")
    literal = members.text_or_none("defaultValueExpression")
    column = Column(
        name=name,
        position=members.integer("position", number, high=MAX_COLUMNS),
        type_name=base.name,
        declared_type=declared,
        length=length,
        scale=scale,
        unsigned=unsigned,
        zerofill=zerofill,
        nullable=nullable,
        charset=charset,
        collation=None if charset is None else default_collation(charset),
        has_default=literal is not None or members.flag("hasDefaultValue", False) or nullable,
        default=f"b'{literal}'" if literal and base.name == "BIT" and _BIT_LITERAL.fullmatch(literal) else literal,
        auto_increment=auto_incremented and not base.updates_itself,
        enum_values=_read_enum_values(members, base),
        comment=members.text_or_none("comment"),
        on_update=auto_incremented and base.updates_itself,
        declared_charset=_declared_charset(members, "charsetName", charset),
    )
    return column if literal is None else replace(column, stored_default=_stored_default(column, literal))


def _stored_default(column: Column, literal: str) -> str | None:
    """Return what the server stores for a default, which the format has without quotes (``literals.default_text``)."""
    kind = DefaultKind.TEXT
    if column.type_name == "BIT" and _BIT_LITERAL.fullmatch(literal):
        kind = DefaultKind.BITS
    elif column.family is Family.BYTES and literal.startswith("0x"):
        kind, literal = DefaultKind.HEX, literal.removeprefix("0x")
    elif column.family is Family.YEAR and literal != "00":
        kind = DefaultKind.NUMBER
    return stored_default(Default(kind, literal), column, DdlContext())


def _read_length(members: Members, declared: str, base: MySqlType) -> tuple[int | None, int | None]:
    """Return length and scale as in a CREATE TABLE statement; those of ENUM and SET are ignored."""
    length, scale = members.integer_or_none("length"), members.integer_or_none("scale")
    if base.needs_length and length is None:
        raise members.member_error("length", f"set for a {base.name}")
    if base.has_members:
        return None, None
    return (1, None) if declared in ("BOOL", "BOOLEAN") else (length, scale)


def _read_enum_values(members: Members, base: MySqlType) -> tuple[str, ...]:
    if not base.has_members:
        return ()
    values = members.values("enumValues") if members.value("enumValues", None) is not None else []
    if not values or not all(isinstance(value, str) for value in values):
        raise members.member_error("enumValues", f"the members of the {base.name}")
    return tuple(_unquoted(value) for value in values)


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] == "'"
    return text[1:-1].replace("''", "'") if quoted else text


def _read_charset(members: Members, name: str) -> str | None:
    text = members.text_or_none(name)
    if text is None:
        return None
    try:
        return charset_name(text)
    except DdlParseError:
        raise members.member_error(name, "a character set of MySQL") from None


def _declared_charset(members: Members, name: str, charset: str | None) -> str:
    """Return the name of a character set as the signal has it; empty when it equals the present-day name."""
    text = members.text_or_none(name)
    return "" if text is None or charset is None or text == charset else text


def _merge_table(table: Table, current: Table | None) -> Table:
    """Return a structure, with the properties that the format does not have taken from the current structure."""
    if current is None:
        return table
    columns = tuple(_merge_column(column, current.column(column.name)) for column in table.columns)
    indexes = tuple(i for i in current.unique_keys if all(table.column(name) is not None for name in i.columns))
    merged = replace(table, columns=columns, unique_keys=indexes, engine=current.engine)
    if table.charset == current.charset:
        merged = replace(merged, collation=current.collation)
    # The format names the columns of the event key, which are those of the primary key or of a unique index.
    unchanged = replace(merged, primary_key=current.primary_key)
    same = all(table.column(name) is not None for name in current.primary_key)
    same = same and unchanged.key_columns() == table.primary_key
    return unchanged if same else merged


def _merge_column(column: Column, current: Column | None) -> Column:
    """Return the current column if the format describes it unchanged, else keep only what the format does not have."""
    if current is None or current.type_name != column.type_name:
        return column
    unchanged = replace(current, name=column.name, position=column.position, comment=column.comment)
    if column_dict(unchanged) == column_dict(column):
        return unchanged
    collation = current.collation if column.charset == current.charset else column.collation
    return replace(
        column, srid=current.srid, invisible=current.invisible, generated=current.generated, collation=collation
    )
