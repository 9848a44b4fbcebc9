"""Turn column definitions as written into columns as the server makes them.

Source: MySQL 9.7 manual, "Column Character Set and Collation", "Silent Column Specification Changes", "Data Type
Default Values", "Automatic Initialization and Updating for TIMESTAMP and DATETIME"; checked against a server by
tests/integration/test_ddl_differential.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.ddl.collations import (
    MAX_CHARACTER_BYTES,
    UNIT_BYTES,
    binary_collation,
    charset_name,
    collation_by_name,
)
from airflow_provider_mysql_cdc.cdc.ddl.literals import bytes_default, default_text, member_text
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, DefaultCharset
from airflow_provider_mysql_cdc.cdc.ddl.statements import (
    ColumnSpec,
    DatabaseStatement,
    Default,
    DefaultKind,
    TableOptions,
)
from airflow_provider_mysql_cdc.cdc.ddl.stored_defaults import stored_default
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import encode_lossy, shown_text, within_charset
from airflow_provider_mysql_cdc.cdc.model.mysql_types import (
    BLOB_BY_SIZE,
    SPATIAL_FAMILIES,
    TEXT_BY_SIZE,
    Family,
    mysql_type,
)
from airflow_provider_mysql_cdc.cdc.model.table import Column

_TEXT_CAPACITIES = ((255, 0), (65535, 1), (16777215, 2))
_MAX_VARCHAR_BYTES = 65535
_SIZED_BY_WIDTH = frozenset((Family.TEXT, Family.BYTES, Family.JSON, *SPATIAL_FAMILIES))
_VECTOR_LENGTH = 2048
_WITHOUT_DEFAULT = frozenset((*TEXT_BY_SIZE, *BLOB_BY_SIZE))
ZERO_TIMESTAMP = "0000-00-00 00:00:00"


def resolve_charset(
    charset: str | None, collation: str | None, default: DefaultCharset, context: DdlContext
) -> DefaultCharset:
    """Combine CHARSET and COLLATE clauses with the default of the level above.

    Args:
        charset: Name as written; None when not given, empty for DEFAULT.
        collation: Likewise.
        default: What holds when neither is given.
        context: Session context.

    Raises:
        DdlParseError: An unknown name.
    """
    if collation:
        named = collation_by_name(collation)
        written = charset or collation.partition("_")[0]
        return DefaultCharset(named.charset, named.name, "" if written == named.charset else written)
    if charset:
        name = charset_name(charset)
        return DefaultCharset(name, context.collation_of(name), "" if charset == name else charset)
    return default


def resolve_clauses(
    clauses: TableOptions | DatabaseStatement, default: DefaultCharset, context: DdlContext
) -> DefaultCharset:
    """Combine the CHARSET and COLLATE clauses of a table or a database, in the order in which they stand.

    Args:
        clauses: The clauses.
        default: What holds when neither is given.
        context: Session context.

    Raises:
        DdlParseError: An unknown name.
    """
    charset, collation = clauses.charset, clauses.collation
    reset = context.utf8mb4_after_collate
    if reset is not None and clauses.charset_is_last:
        context = context if collation is None else replace(context, default_collation_for_utf8mb4=reset)
        collation = None
    elif reset is not None and collation == "":
        charset = None
    return resolve_charset(charset, collation, default, context)


def text_size_class(byte_length: int) -> int:
    """Return which of TINY, plain, MEDIUM, LONG (0 to 3) holds that many bytes."""
    return next((size for limit, size in _TEXT_CAPACITIES if byte_length <= limit), 3)


def resolve_columns(specs: Sequence[ColumnSpec], defaults: DefaultCharset, context: DdlContext) -> list[Column]:
    """Return the columns of one statement; positions are left 0.

    Args:
        specs: The definitions in order.
        defaults: The table's character set.
        context: Session context.

    Raises:
        DdlParseError: An unknown character set or collation, or a literal that does not fit its type.
    """
    columns = [_resolve_column(spec, defaults, context) for spec in specs]
    if context.explicit_defaults_for_timestamp:
        return columns
    return [_implicit_not_null(spec, column) for spec, column in zip(specs, columns, strict=True)]


def _implicit_not_null(spec: ColumnSpec, column: Column) -> Column:
    """Make a TIMESTAMP column NOT NULL unless it says NULL (explicit_defaults_for_timestamp=OFF)."""
    if column.type_name != "TIMESTAMP" or spec.nullable is True or spec.generated:
        return column
    return replace(column, nullable=False, has_default=column.default is not None)


def with_timestamp_defaults(columns: list[Column], defined: Iterable[Column], context: DdlContext) -> list[Column]:
    """Return a table's columns with the defaults that TIMESTAMP columns get by themselves.

    Only with explicit_defaults_for_timestamp=OFF: the table's first TIMESTAMP column becomes DEFAULT CURRENT_TIMESTAMP
    ON UPDATE CURRENT_TIMESTAMP when it is NOT NULL and has neither clause; others of that kind which the statement
    defines get the zero timestamp.

    Args:
        columns: All columns of the table.
        defined: Those of them which the statement defines.
        context: Session context.
    """
    if context.explicit_defaults_for_timestamp:
        return columns
    first = next((c for c in columns if c.type_name == "TIMESTAMP"), None)
    result = []
    for column in columns:
        lacks_default = column.type_name == "TIMESTAMP" and not (
            column.nullable or column.has_default or column.generated
        )
        if lacks_default and column is first and not column.on_update:
            text = f"CURRENT_TIMESTAMP({column.length})" if column.length else "CURRENT_TIMESTAMP"
            result.append(replace(column, has_default=True, default=text, default_is_expression=True, on_update=True))
        elif lacks_default and column in defined:
            stored = stored_default(Default(DefaultKind.TEXT, ZERO_TIMESTAMP), column, context)
            result.append(replace(column, has_default=True, default=ZERO_TIMESTAMP, stored_default=stored))
        else:
            result.append(column)
    return result


def _resolve_column(spec: ColumnSpec, defaults: DefaultCharset, context: DdlContext) -> Column:
    type_name = spec.type_name
    charset = _column_charset(spec, defaults, context) if mysql_type(type_name).collated else None
    if charset is not None and charset.charset == "binary" and mysql_type(type_name).binary_type:
        type_name, charset = mysql_type(type_name).binary_type, None
    type_name = fit_type(type_name, spec.length, charset)
    nullable = spec.nullable is not False and not spec.primary
    column = Column(
        name=spec.name,
        position=0,
        type_name=type_name,
        declared_type=spec.declared_type,
        length=spec.length,
        scale=spec.scale,
        unsigned=spec.unsigned,
        zerofill=spec.zerofill,
        nullable=nullable,
        charset=charset.charset if charset else None,
        collation=charset.collation if charset else None,
        auto_increment=spec.auto_increment,
        generated=spec.generated,
        enum_values=tuple(_enum_member(m, charset, context) for m in spec.members),
        comment=spec.comment or None,
        srid=spec.srid,
        invisible=spec.invisible,
        on_update=spec.on_update,
        declared_charset=charset.declared if charset else "",
    )
    return with_default(column, spec.default, context)


def _column_charset(spec: ColumnSpec, defaults: DefaultCharset, context: DdlContext) -> DefaultCharset:
    charset = resolve_charset(spec.charset, spec.collation, defaults, context)
    if spec.binary and not spec.collation:
        return replace(charset, collation=binary_collation(charset.charset))
    return charset


def fit_type(type_name: str, length: int | None, charset: DefaultCharset | None) -> str:
    """Return the type that a length makes of a TEXT, BLOB or VARCHAR type.

    ``TEXT(n)`` and ``BLOB(n)`` become the smallest type that holds n characters; without strict mode a VARCHAR that is
    too long becomes a TEXT type.
    """
    if length is None:
        return type_name
    size = length * (MAX_CHARACTER_BYTES[charset.charset] if charset else 1)
    if type_name == "TEXT":
        return TEXT_BY_SIZE[text_size_class(size)]
    if type_name == "BLOB":
        return BLOB_BY_SIZE[text_size_class(size)]
    if type_name == "VARCHAR" and size > _MAX_VARCHAR_BYTES:
        return TEXT_BY_SIZE[text_size_class(size)]
    if type_name == "VARBINARY" and size > _MAX_VARCHAR_BYTES:
        return BLOB_BY_SIZE[text_size_class(size)]
    return type_name


def with_default(column: Column, default: Default | None, context: DdlContext) -> Column:
    """Return the column with a DEFAULT clause applied; None means there is none.

    Default values of binary types given as hex digits stay ``0x...`` when they are no printable text; those of BIT
    columns given as bits or hex digits read ``b'...'``.
    """
    if column.generated or column.auto_increment:
        return replace(column, has_default=False, default=None, default_is_expression=False, stored_default=None)
    # Without strict mode TEXT and BLOB may have DEFAULT '', which the server drops.
    is_dropped = default is not None and default.kind is DefaultKind.TEXT and column.type_name in _WITHOUT_DEFAULT
    if default is None or is_dropped or default.kind is DefaultKind.NULL:
        return replace(
            column, has_default=column.nullable, default=None, default_is_expression=False, stored_default=None
        )
    expression = default.kind is DefaultKind.EXPRESSION
    return replace(
        column,
        has_default=True,
        default=default.text if expression else default_text(default, column, context),
        default_is_expression=expression,
        stored_default=None if expression else stored_default(default, column, context),
    )


def _enum_member(literal: Default, charset: DefaultCharset | None, context: DdlContext) -> str:
    """Return a member of ENUM or SET; the server drops its trailing spaces, but not those of bytes."""
    name = charset.charset if charset else "utf8mb4"
    text = member_text(literal, name, context)
    return text if name == "binary" else text.rstrip(" ")


def with_charset(column: Column, target: DefaultCharset) -> Column:
    """Return a column after CONVERT TO CHARACTER SET: types grow so that they hold as many characters as before."""
    if column.charset is None or column.charset == "binary":
        return column
    type_name = column.type_name
    binary = column.mysql_type.binary_type
    if target.charset == "binary" and binary:
        return _of_bytes(column, binary)
    if type_name in TEXT_BY_SIZE or fit_type(type_name, column.length, target) != type_name:
        type_name = TEXT_BY_SIZE[_converted_size(column, target.charset)]
    members = tuple(_reinterpreted(member, column.charset, target.charset) for member in column.enum_values)
    declared = column.declared_type if type_name == column.type_name else type_name
    length = column.length if type_name not in TEXT_BY_SIZE else None
    return replace(
        column,
        type_name=type_name,
        declared_type=declared,
        length=length,
        charset=target.charset,
        collation=target.collation,
        enum_values=members,
        default=_default_member(column, column.default, target.charset),
        declared_charset=target.declared,
        stored_default=_converted_default(column, target.charset),
    )


def _of_bytes(column: Column, type_name: str) -> Column:
    """Return a column of text as the binary type that CONVERT TO CHARACTER SET binary makes of it.

    What is stored for a default is filled up with spaces or zeros, as sql_mode says, and cut in some versions.
    """
    default = column.default
    if default is not None and not column.default_is_expression:
        value = default.rstrip(" ") if column.type_name == "CHAR" else default
        default = bytes_default(encode_lossy(value, column.charset or ""))
    return replace(
        column,
        type_name=type_name,
        declared_type=type_name,
        charset=None,
        collation=None,
        length=column.length if column.type_name in ("CHAR", "VARCHAR") else None,
        default=default,
        declared_charset="",
        stored_default=None,
    )


def _default_member(column: Column, default: str | None, target: str) -> str | None:
    """Return the default after CONVERT TO; that of ENUM and SET keeps its bytes, as their members do."""
    if default is None or not column.enum_values:
        return default
    return _reinterpreted(default, column.charset or "", target)


def _converted_default(column: Column, target: str) -> str | None:
    if target == "binary":
        return None
    stored = _default_member(column, column.stored_default, target)
    return stored if stored is None or column.enum_values else within_charset(stored, target)


def converted_spec(spec: ColumnSpec, target: DefaultCharset, context: DdlContext) -> ColumnSpec:
    """Return a definition as CONVERT TO CHARACTER SET in the same statement leaves it (MySQL 8.0.15, 9.7.4).

    The character set that it names gives way to the table's, unless it is ``binary``; BINARY stays where it names none.

    Args:
        spec: The definition.
        target: What CONVERT TO names.
        context: Session context.

    Raises:
        DdlParseError: An unknown character set or collation.
    """
    if resolve_charset(spec.charset, spec.collation, target, context).charset == "binary":
        return spec
    return replace(spec, charset=None, collation=None, binary=spec.binary and spec.charset is None)


def with_converted_size(column: Column, spec: ColumnSpec, old: Column) -> Column:
    """Return a column that MODIFY or CHANGE beside CONVERT TO defines: the old one's length says its TEXT or BLOB type.

    The server does so for each such type without a length but the largest (MySQL 8.0.15, 9.7.4).

    Args:
        column: The column as its definition says.
        spec: The definition.
        old: The column before.
    """
    sizes = next((s for s in (TEXT_BY_SIZE, BLOB_BY_SIZE) if column.type_name in s[:-1]), None)
    if sizes is None or spec.length is not None:
        return column
    return replace(column, type_name=sizes[_converted_size(old, column.charset)])


def _converted_size(old: Column, charset: str | None) -> int:
    """Return which of TINY, plain, MEDIUM, LONG (0 to 3) the server gives a TEXT or BLOB type made of another column.

    It divides the length by the bytes of a character also where it counts characters (MySQL 8.0.15, 9.7.4).
    """
    before, after = (MAX_CHARACTER_BYTES[name] if name else 1 for name in (old.charset, charset))
    return text_size_class(_column_length(old) // before * after)


def _column_length(column: Column) -> int:
    """Return a column's length as the server counts it; dates and plain numbers are too short to matter."""
    kind, length = column.mysql_type, column.length or column.mysql_type.default_length or 0
    if kind.width and kind.family in _SIZED_BY_WIDTH:
        return int(256**kind.width - 1)
    if kind.family is Family.ENUM:
        return max(map(len, column.enum_values), default=0)
    if kind.family is Family.SET:
        return len(",".join(column.enum_values))
    if kind.family is Family.DECIMAL:
        return length + bool(column.scale) + (not column.unsigned)
    return 4 * (column.length or _VECTOR_LENGTH) if kind.family is Family.VECTOR else length


def _reinterpreted(member: str, charset: str, target: str) -> str:
    """Return a member after CONVERT TO as the server shows it, which keeps its bytes (MySQL 8.0.15, 9.7.4)."""
    if member.isascii() and not {charset, target} & UNIT_BYTES.keys():
        return member
    if target == "binary":
        return encode_lossy(member, charset).decode("latin-1")
    return shown_text(encode_lossy(member, charset), target)
