"""Structures of tables that a signal tells: Debezium's form of table changes, as its schema history has it.

What the form does not hold (collations, unique indexes, generated columns) stays as it was, where the column or the key
is still the same. Source: Debezium 3.6.1, ``JsonTableChangeSerializer.deserialize``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.ddl.apply import ChangeKind, TableChange
from airflow_provider_mysql_cdc.cdc.ddl.collations import charset_collation, charset_name
from airflow_provider_mysql_cdc.cdc.ddl.data_types import TYPES
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.emit.schema_change import change_dict, column_dict
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members
from airflow_provider_mysql_cdc.cdc.model.table import COLLATED_TYPES, Column, Table, TableId

MAX_COLUMNS = 4096
"""Columns that MySQL allows in a table."""
MAX_BYTES = 512 * 1024
"""Bytes of a change in the schema change topic, without its schema; brokers take records of 1 MiB."""
_MAX_NAME = 64
_KINDS: dict[str, ChangeKind] = {"CREATE": "CREATE", "ALTER": "ALTER", "DROP": "DROP"}
_ID = re.compile(r'(?:"((?:[^"]|"")+)"|([^".]+))\.(?:"((?:[^"]|"")+)"|([^".]+))')
_WITH_LENGTH = frozenset(("VARCHAR", "VARBINARY", "VECTOR"))
_TIMES = frozenset(("TIMESTAMP", "DATETIME"))
_BITS = re.compile(r"[01]+")
_SINGLE_DIGITS = 24  # binary digits of a FLOAT; with more it is a DOUBLE


@dataclass(frozen=True, slots=True)
class ToldChange:
    """Hold one table change of a signal.

    Args:
        kind: What happens to the table.
        id: The table.
        previous_id: Its name before, or None.
        table: Its structure, as far as it is told; None when it is dropped.
        given: The change as it was given.
    """

    kind: ChangeKind
    id: TableId
    previous_id: TableId | None
    table: Table | None
    given: Mapping[str, Any]

    def apply(self, state: SchemaState) -> tuple[SchemaState, TableChange]:
        """Return the structures behind the change, and what it did.

        Args:
            state: Structures before it.
        """
        known = state.tables.get(self.previous_id or self.id)
        plain = state.plain_keys.get(self.previous_id or self.id, ())
        table = None if self.table is None else _completed(self.table, known)
        state = state.without_tables(*(t for t in (self.id, self.previous_id) if t is not None))
        if table is not None:
            state = state.with_table(table, plain)
        kind: ChangeKind = "RENAME" if self.previous_id is not None and self.kind == "ALTER" else self.kind
        return state, TableChange(kind, self.id, self.previous_id, table, "", self.id.db)


def apply_all(state: SchemaState, changes: Sequence[ToldChange]) -> tuple[SchemaState, tuple[TableChange, ...]]:
    """Return the structures behind some changes, and what each did.

    Args:
        state: Structures before them.
        changes: The changes, in order.
    """
    done = []
    for change in changes:
        state, applied = change.apply(state)
        done.append(applied)
    return state, tuple(done)


def read_told(given: Members, db: str = "") -> ToldChange:
    """Read one table change.

    Args:
        given: Its members.
        db: The database that the table must be of; empty for any.

    Raises:
        DamagedRecordError: It is no table change; the text names the member.
    """
    kind = _KINDS[given.one_of("type", tuple(_KINDS))]
    table_id = _table_id(given, "id")
    if db and table_id.db != db:
        raise given.refuse("id", f'a table of database {db}, as in "{db}"."table"')
    previous = None if given.value("previousId", None) is None else _table_id(given, "previousId")
    table = None if kind == "DROP" else _table(table_id, given.object("table"))
    told = ToldChange(kind, table_id, previous, table, given.as_dict())
    shown = change_dict(told.apply(SchemaState())[1], comments=True)
    if (size := len(json.dumps(shown).encode())) > MAX_BYTES:
        raise given.refuse("table", f"described in {MAX_BYTES} bytes (it takes {size})")
    return told


def _table_id(given: Members, name: str) -> TableId:
    found = _ID.fullmatch(given.text(name).strip())
    if found is None:
        raise given.refuse(name, 'the name of a table, as in "database"."table"')
    quoted_db, db, quoted_table, table = found.groups()
    names = [plain or quoted.replace('""', '"') for quoted, plain in ((quoted_db, db), (quoted_table, table))]
    if any(len(part) > _MAX_NAME for part in names):
        raise given.refuse(name, f"of names with at most {_MAX_NAME} characters")
    return TableId(*names)


def _table(table_id: TableId, given: Members) -> Table:
    default = _charset(given, "defaultCharsetName")
    told = given.objects("columns")
    if not 0 < len(told) <= MAX_COLUMNS:
        raise given.refuse("columns", f"a list of 1 to {MAX_COLUMNS} columns")
    columns = sorted((_column(c, number, default) for number, c in enumerate(told, 1)), key=lambda c: c.position)
    if [c.position for c in columns] != list(range(1, len(columns) + 1)):
        raise given.refuse("columns", "numbered from 1 on by their positions")
    if len({c.name.lower() for c in columns}) < len(columns):
        raise given.refuse("columns", "of names that differ")
    table = Table(table_id, tuple(columns), charset=default, comment=given.text_or_none("comment"))
    if default is not None:
        table = replace(table, collation=charset_collation(default))
    keys = given.values("primaryKeyColumnNames") if given.value("primaryKeyColumnNames", None) is not None else []
    found = [table.column(key) if isinstance(key, str) else None for key in keys]
    names = tuple(c.name for c in found if c is not None)
    if len(set(names)) < len(keys):
        raise given.refuse("primaryKeyColumnNames", "names of columns, each once")
    return replace(table, primary_key=names)


def _column(given: Members, number: int, default: str | None) -> Column:
    name = given.text("name")
    if not 0 < len(name) <= _MAX_NAME:
        raise given.refuse("name", f"a text of 1 to {_MAX_NAME} characters")
    words = " ".join(given.text("typeName").upper().split())
    zerofill = words.endswith(" ZEROFILL")
    declared = words.removesuffix(" ZEROFILL")
    unsigned = declared.endswith(" UNSIGNED") or zerofill
    declared = declared.removesuffix(" UNSIGNED").removesuffix(" SIGNED")
    base = TYPES.get(declared)
    if base is None:
        raise given.refuse("typeName", "a type of MySQL, without its length")
    length, scale = _size(given, declared, base)
    if base == "FLOAT" and scale is None and length is not None and length > _SINGLE_DIGITS:
        base = "DOUBLE"
    charset = (_charset(given, "charsetName") or default) if base in COLLATED_TYPES else None
    if base in COLLATED_TYPES and charset is None:
        raise given.refuse("charsetName", "a character set, as the table has no default")
    automatic = given.flag("autoIncremented", False)
    nullable = given.flag("optional")
    literal = given.text_or_none("defaultValueExpression")
    return Column(
        name=name,
        position=given.whole("position", number, high=MAX_COLUMNS),
        type_name=base,
        declared_type=declared,
        length=length,
        scale=scale,
        unsigned=unsigned,
        zerofill=zerofill,
        nullable=nullable,
        charset=charset,
        collation=None if charset is None else charset_collation(charset),
        has_default=literal is not None or given.flag("hasDefaultValue", False) or nullable,
        default=f"b'{literal}'" if literal and base == "BIT" and _BITS.fullmatch(literal) else literal,
        auto_increment=automatic and base not in _TIMES,
        enum_values=_members(given, base),
        comment=given.text_or_none("comment"),
        on_update=automatic and base in _TIMES,
    )


def _size(given: Members, declared: str, base: str) -> tuple[int | None, int | None]:
    """Return length and scale as a statement gives them; those of ENUM and SET tell nothing."""
    length, scale = given.whole_or_none("length"), given.whole_or_none("scale")
    if base in _WITH_LENGTH and length is None:
        raise given.refuse("length", f"there, for a {base}")
    if base in ("ENUM", "SET"):
        return None, None
    return (1, None) if declared in ("BOOL", "BOOLEAN") else (length, scale)


def _members(given: Members, base: str) -> tuple[str, ...]:
    if base not in ("ENUM", "SET"):
        return ()
    values = given.values("enumValues") if given.value("enumValues", None) is not None else []
    if not values or not all(isinstance(value, str) for value in values):
        raise given.refuse("enumValues", f"the members of the {base}")
    return tuple(_unquoted(value) for value in values)


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] == "'"
    return text[1:-1].replace("''", "'") if quoted else text


def _charset(given: Members, name: str) -> str | None:
    text = given.text_or_none(name)
    if text is None:
        return None
    try:
        return charset_name(text)
    except DdlParseError:
        raise given.refuse(name, "a character set of MySQL") from None


def _completed(table: Table, known: Table | None) -> Table:
    """Return a structure with what the form does not hold, as it was."""
    if known is None:
        return table
    columns = tuple(_kept(column, known.column(column.name)) for column in table.columns)
    names = {column.name.lower() for column in columns}
    indexes = tuple(i for i in known.unique_keys if all(name.lower() in names for name in i.columns))
    full = replace(table, columns=columns, unique_keys=indexes, engine=known.engine)
    if table.charset == known.charset:
        full = replace(full, collation=known.collation)
    # The form names the columns of the event key, be they of the primary key or of a unique index.
    as_before = replace(full, primary_key=known.primary_key)
    same = all(name.lower() in names for name in known.primary_key) and as_before.key_columns() == table.primary_key
    return as_before if same else full


def _kept(column: Column, known: Column | None) -> Column:
    """Return a column as it was, when the form describes it as it was; else only what the form does not hold."""
    if known is None or known.type_name != column.type_name:
        return column
    as_before = replace(known, name=column.name, position=column.position, comment=column.comment)
    if column_dict(as_before) == column_dict(column):
        return as_before
    collation = known.collation if column.charset == known.charset else column.collation
    return replace(column, srid=known.srid, invisible=known.invisible, generated=known.generated, collation=collation)
