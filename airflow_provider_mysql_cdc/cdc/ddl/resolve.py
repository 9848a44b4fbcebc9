"""Turn column definitions as written into columns as the server makes them.

Source: MySQL 9.7 manual, "Column Character Set and Collation", "Silent Column Specification Changes", "Data Type
Default Values", "Automatic Initialization and Updating for TIMESTAMP and DATETIME"; checked against a server by
tests/integration/test_ddl_differential.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.ddl.collations import (
    MAX_BYTES,
    binary_collation,
    charset_name,
    collation_named,
)
from airflow_provider_mysql_cdc.cdc.ddl.state import DbDefaults, DdlContext
from airflow_provider_mysql_cdc.cdc.ddl.statements import ColumnSpec, Default, DefaultKind
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.table import (
    BINARY_TYPES,
    BLOBS,
    CHARACTER_TYPES,
    COLLATED_TYPES,
    TEXTS,
    Column,
)

_CAPACITY = ((255, 0), (65535, 1), (16777215, 2))
_BINARY_OF = dict(zip(CHARACTER_TYPES, BINARY_TYPES, strict=True))
_MAX_VARCHAR = 65535
_MAX_NUMBER = 64  # bytes; DECIMAL(65) has 27, and Python prints numbers of at most 4,300 digits
ZERO_TIMESTAMP = "0000-00-00 00:00:00"


def pick_charset(charset: str | None, collation: str | None, default: DbDefaults, context: DdlContext) -> DbDefaults:
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
        found = collation_named(collation)
        return DbDefaults(found.charset, found.name)
    if charset:
        name = charset_name(charset)
        return DbDefaults(name, context.collation_of(name))
    return default


def text_size(byte_length: int) -> int:
    """Return which of TINY, plain, MEDIUM, LONG (0 to 3) holds that many bytes."""
    return next((size for limit, size in _CAPACITY if byte_length <= limit), 3)


def resolve(specs: Sequence[ColumnSpec], defaults: DbDefaults, context: DdlContext) -> list[Column]:
    """Return the columns of one statement; positions are left 0.

    Args:
        specs: The definitions in order.
        defaults: The table's character set.
        context: Session context.

    Raises:
        DdlParseError: An unknown character set or collation, or a literal that does not fit its type.
    """
    columns = [_column(spec, defaults, context) for spec in specs]
    if context.explicit_defaults_for_timestamp:
        return columns
    return [_implicit(spec, column) for spec, column in zip(specs, columns, strict=True)]


def _implicit(spec: ColumnSpec, column: Column) -> Column:
    """Make a TIMESTAMP column NOT NULL unless it says NULL (explicit_defaults_for_timestamp=OFF)."""
    if column.type_name != "TIMESTAMP" or spec.nullable is True or spec.generated:
        return column
    return replace(column, nullable=False, has_default=column.default is not None)


def promoted(columns: list[Column], defined: Iterable[Column], context: DdlContext) -> list[Column]:
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
        bare = column.type_name == "TIMESTAMP" and not (column.nullable or column.has_default or column.generated)
        if bare and column is first and not column.on_update:
            text = f"CURRENT_TIMESTAMP({column.length})" if column.length else "CURRENT_TIMESTAMP"
            result.append(replace(column, has_default=True, default=text, default_is_expression=True, on_update=True))
        elif bare and column in defined:
            result.append(replace(column, has_default=True, default=ZERO_TIMESTAMP))
        else:
            result.append(column)
    return result


def _column(spec: ColumnSpec, defaults: DbDefaults, context: DdlContext) -> Column:
    base = spec.base
    chosen = _column_charset(spec, defaults, context) if base in COLLATED_TYPES else None
    if chosen is not None and chosen.charset == "binary" and base in _BINARY_OF:
        base, chosen = _BINARY_OF[base], None
    base = fit(base, spec.length, chosen)
    nullable = spec.nullable is not False and not spec.primary
    column = Column(
        name=spec.name,
        position=0,
        type_name=base,
        declared_type=spec.declared,
        length=spec.length,
        scale=spec.scale,
        unsigned=spec.unsigned,
        zerofill=spec.zerofill,
        nullable=nullable,
        charset=chosen.charset if chosen else None,
        collation=chosen.collation if chosen else None,
        auto_increment=spec.auto_increment,
        generated=spec.generated,
        enum_values=tuple(_member(m, chosen) for m in spec.members),
        comment=spec.comment or None,
        srid=spec.srid,
        invisible=spec.invisible,
        on_update=spec.on_update,
    )
    return with_default(column, spec.default)


def _column_charset(spec: ColumnSpec, defaults: DbDefaults, context: DdlContext) -> DbDefaults:
    chosen = pick_charset(spec.charset, spec.collation, defaults, context)
    if spec.binary and not spec.collation:
        return DbDefaults(chosen.charset, binary_collation(chosen.charset))
    return chosen


def fit(base: str, length: int | None, charset: DbDefaults | None) -> str:
    """Return the type that a length makes of a TEXT, BLOB or VARCHAR type.

    ``TEXT(n)`` and ``BLOB(n)`` become the smallest type that holds n characters; without strict mode a VARCHAR that is
    too long becomes a TEXT type.
    """
    if length is None:
        return base
    size = length * (MAX_BYTES[charset.charset] if charset else 1)
    if base == "TEXT":
        return TEXTS[text_size(size)]
    if base == "BLOB":
        return BLOBS[text_size(size)]
    if base == "VARCHAR" and size > _MAX_VARCHAR:
        return TEXTS[text_size(size)]
    if base == "VARBINARY" and size > _MAX_VARCHAR:
        return BLOBS[text_size(size)]
    return base


def with_default(column: Column, default: Default | None) -> Column:
    """Return the column with a DEFAULT clause applied; None means there is none.

    Default values of binary types given as hex digits stay ``0x...`` when they are no printable text; those of BIT
    columns given as bits or hex digits read ``b'...'``.
    """
    if column.generated or column.auto_increment:
        return replace(column, has_default=False, default=None, default_is_expression=False)
    if default is None or default.kind is DefaultKind.NULL:
        return replace(column, has_default=column.nullable, default=None, default_is_expression=False)
    expression = default.kind is DefaultKind.EXPRESSION
    text = default.text if expression else default_text(default, column)
    return replace(column, has_default=True, default=text, default_is_expression=expression)


def default_text(default: Default, column: Column) -> str:
    """Return a literal default as the text of a value of the column's type."""
    if default.kind in (DefaultKind.TEXT, DefaultKind.NUMBER):
        return default.text
    if default.kind is DefaultKind.HEX:
        digits = "0" + default.text if len(default.text) % 2 else default.text
        raw = bytes.fromhex(digits)
    else:
        raw = int(default.text or "0", 2).to_bytes((len(default.text) + 7) // 8, "big")
    if column.type_name == "BIT":
        return f"b'{int.from_bytes(raw, 'big'):b}'"
    if column.charset is not None:
        return decode_text(raw, column.charset)
    if column.type_name in BINARY_TYPES:
        text = raw.decode("utf-8", "replace")
        return text if text.isprintable() and "\ufffd" not in text else "0x" + raw.hex().upper()
    if len(raw) > _MAX_NUMBER:
        raise DdlParseError("a default value does not fit its column", where=column.name)
    return str(int.from_bytes(raw, "big"))


_CODECS = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "latin1": "cp1252",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "big5": "big5",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "tis620": "tis_620",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
}


def decode_text(raw: bytes, charset: str) -> str:
    """Return bytes of a hex literal as text of a MySQL character set; single bytes stand for themselves elsewhere."""
    return raw.decode(_CODECS.get(charset, "latin-1"), "replace")


def _member(literal: Default, charset: DbDefaults | None) -> str:
    """Return a member of ENUM or SET; the server drops its trailing spaces."""
    if literal.kind in (DefaultKind.HEX, DefaultKind.BITS):
        column = Column("", 0, "VARCHAR", charset=charset.charset if charset else "utf8mb4")
        return default_text(literal, column).rstrip(" ")
    return literal.text.rstrip(" ")


def converted(column: Column, target: DbDefaults) -> Column:
    """Return a column after CONVERT TO CHARACTER SET: types grow so that they hold as many characters as before."""
    if column.charset is None or column.charset == "binary":
        return column
    base = column.type_name
    if target.charset == "binary" and base in _BINARY_OF:
        binary = _BINARY_OF[base]
        length = column.length if base in ("CHAR", "VARCHAR") else None
        return replace(column, type_name=binary, declared_type=binary, charset=None, collation=None, length=length)
    wider = MAX_BYTES[target.charset] > MAX_BYTES[column.charset]
    if base in TEXTS and wider:
        base = TEXTS[min(TEXTS.index(base) + 1, 3)]
    elif base == "VARCHAR":
        base = fit(base, column.length, target)
    declared = column.declared_type if base == column.type_name else base
    length = column.length if base not in TEXTS else None
    return replace(
        column,
        type_name=base,
        declared_type=declared,
        length=length,
        charset=target.charset,
        collation=target.collation,
    )
