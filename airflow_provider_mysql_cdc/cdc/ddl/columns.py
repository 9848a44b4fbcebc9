"""Parse column definitions.

Source: MySQL 9.7 manual, "CREATE TABLE Statement" and the chapter "Data Types".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.ddl.collations import charset_name
from airflow_provider_mysql_cdc.cdc.ddl.lexer import REAL_AS_FLOAT, Cursor, TokenKind
from airflow_provider_mysql_cdc.cdc.ddl.statements import ColumnSpec, Default, DefaultKind
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import basic_plane
from airflow_provider_mysql_cdc.cdc.model.mysql_types import TYPE_BY_WORDS, Family, mysql_type

_AFTER_COLUMN = (",", ")", "FIRST", "AFTER", "PARTITION", "REMOVE")
_NOW_FUNCTIONS = frozenset(("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"))


def parse_column(cur: Cursor, name: str) -> ColumnSpec:
    """Parse what follows a column's name: type and attributes.

    Args:
        cur: Cursor at the type.
        name: The column's name.

    Raises:
        DdlParseError: An unknown type or attribute.
    """
    spec = _parse_type(cur, name)
    while not cur.at_end() and not cur.matches_one_of(*_AFTER_COLUMN):
        handler = ATTRIBUTES.get(cur.token.upper)
        if handler is None:
            cur.fail(f"an unknown attribute of column {name}")
        cur.next()
        handler(cur, spec)
    return spec


def _parse_type(cur: Cursor, name: str) -> ColumnSpec:
    words, word_count = "", 0
    for count in range(3, 0, -1):
        words = " ".join(cur.peek(i).upper for i in range(count))
        if words in TYPE_BY_WORDS:
            word_count = count
            break
    if not word_count:
        cur.fail(f"an unknown type of column {name}")
    for _ in range(word_count):
        cur.next()
    spec = ColumnSpec(name, TYPE_BY_WORDS[words].type_name, words)
    if cur.matches("("):
        _arguments(cur, spec)
    if TYPE_BY_WORDS[words].national:
        spec.charset = "utf8mb3"
    special = _TYPE_PARSERS.get(words)
    if special is not None:
        special(cur, spec)
    return spec


def _arguments(cur: Cursor, spec: ColumnSpec) -> None:
    cur.expect("(")
    if mysql_type(spec.type_name).has_members:
        members = [parse_literal(cur)]
        while cur.accept(","):
            members.append(parse_literal(cur))
        spec.members = tuple(members)
    else:
        spec.length = cur.length()
        if cur.accept(","):
            spec.scale = cur.number()
    cur.expect(")")


def _bool(cur: Cursor, spec: ColumnSpec) -> None:
    spec.length = 1


def _serial(cur: Cursor, spec: ColumnSpec) -> None:
    spec.declared_type, spec.unsigned = "BIGINT", True
    spec.nullable, spec.auto_increment, spec.unique = False, True, True


def _year(cur: Cursor, spec: ColumnSpec) -> None:
    spec.declared_type = "YEAR"  # SQL_TSI_YEAR is a slip of the server's grammar, and no word of Debezium's


def _float(cur: Cursor, spec: ColumnSpec) -> None:
    if spec.length is not None and spec.scale is None and spec.length > 24:
        spec.type_name = "DOUBLE"


def _decimal(cur: Cursor, spec: ColumnSpec) -> None:
    # DECIMAL(0) and DECIMAL(0,0) stand for the default precision.
    spec.length = spec.length or None


def _real(cur: Cursor, spec: ColumnSpec) -> None:
    if cur.sql_mode & REAL_AS_FLOAT:
        spec.type_name = "FLOAT"
        _float(cur, spec)


_AttributeParser = Callable[[Cursor, ColumnSpec], None]
_TYPE_PARSERS: dict[str, _AttributeParser] = {
    "BOOL": _bool,
    "BOOLEAN": _bool,
    "SERIAL": _serial,
    "SQL_TSI_YEAR": _year,
    "FLOAT": _float,
    "REAL": _real,
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC", "FIXED"), _decimal),
}


def parse_literal(cur: Cursor) -> Default:
    """Parse a literal: string, number with one sign, hex, bits, TRUE, FALSE, NULL, date and time literals.

    Raises:
        DdlParseError: No literal is next.
    """
    if sign := cur.accept_one_of("-", "+"):
        if cur.token.kind is not TokenKind.NUMBER:
            cur.fail("expected a number")
        return Default(DefaultKind.NUMBER, sign + cur.next().text)
    token = cur.token
    if token.kind is TokenKind.STRING:
        return Default(DefaultKind.TEXT, cur.string())
    if token.kind in _LITERAL_KINDS:
        cur.next()
        return Default(_LITERAL_KINDS[token.kind], token.text)
    if token.upper in _KEYWORD_LITERALS:
        cur.next()
        return _KEYWORD_LITERALS[token.upper]
    introduces = token.kind is TokenKind.WORD and (
        token.text.startswith("_") or token.upper in ("DATE", "TIME", "TIMESTAMP")
    )
    if introduces and cur.peek().kind in _AFTER_INTRODUCER:
        cur.next()
        literal = parse_literal(cur)
        return replace(literal, introducer=charset_name(token.text[1:])) if token.text[0] == "_" else literal
    cur.fail("expected a literal")


_LITERAL_KINDS = {
    TokenKind.NUMBER: DefaultKind.NUMBER,
    TokenKind.HEX: DefaultKind.HEX,
    TokenKind.BITS: DefaultKind.BITS,
}
_AFTER_INTRODUCER = frozenset((TokenKind.STRING, TokenKind.HEX, TokenKind.BITS))
_KEYWORD_LITERALS = {
    "NULL": Default(DefaultKind.NULL),
    "TRUE": Default(DefaultKind.NUMBER, "1"),
    "FALSE": Default(DefaultKind.NUMBER, "0"),
}


def parse_current_timestamp(cur: Cursor) -> str:
    """Step over CURRENT_TIMESTAMP or a synonym and return it as ``CURRENT_TIMESTAMP`` or ``CURRENT_TIMESTAMP(n)``.

    Returns an empty text, and steps over nothing, when it is not next.
    """
    if not cur.accept_one_of(*_NOW_FUNCTIONS):
        return ""
    digits = 0
    if cur.accept("("):
        digits = 0 if cur.matches(")") else cur.number()
        cur.expect(")")
    return f"CURRENT_TIMESTAMP({digits})" if digits else "CURRENT_TIMESTAMP"


def parse_default(cur: Cursor) -> Default:
    """Parse what follows DEFAULT.

    Raises:
        DdlParseError: Neither a literal, nor CURRENT_TIMESTAMP, nor an expression in parentheses.
    """
    if cur.matches("("):
        return Default(DefaultKind.EXPRESSION, cur.skip_parentheses())
    text = parse_current_timestamp(cur)
    if text:
        return Default(DefaultKind.EXPRESSION, text)
    return parse_literal(cur)


def _default(cur: Cursor, spec: ColumnSpec) -> None:
    spec.default = parse_default(cur)


def _not(cur: Cursor, spec: ColumnSpec) -> None:
    if cur.accept_one_of("SECONDARY", "ENFORCED"):
        return
    cur.expect("NULL")
    spec.nullable = False


def _null(cur: Cursor, spec: ColumnSpec) -> None:
    spec.nullable = True


def _on(cur: Cursor, spec: ColumnSpec) -> None:
    cur.expect("UPDATE")
    if not parse_current_timestamp(cur):
        cur.fail("expected CURRENT_TIMESTAMP")
    spec.on_update = True


def _auto_increment(cur: Cursor, spec: ColumnSpec) -> None:
    spec.auto_increment = True
    spec.nullable = False


def _serial_default(cur: Cursor, spec: ColumnSpec) -> None:
    cur.expect("DEFAULT", "VALUE")
    spec.auto_increment, spec.nullable, spec.unique = True, False, True


def _unique(cur: Cursor, spec: ColumnSpec) -> None:
    cur.accept("KEY")
    spec.unique = True


def _primary(cur: Cursor, spec: ColumnSpec) -> None:
    cur.accept("KEY")
    spec.primary = True


def _key(cur: Cursor, spec: ColumnSpec) -> None:
    spec.primary = True


def _comment(cur: Cursor, spec: ColumnSpec) -> None:
    spec.comment = basic_plane(cur.string())


def _collate(cur: Cursor, spec: ColumnSpec) -> None:
    spec.collation = cur.word_or_string()


def _charset(cur: Cursor, spec: ColumnSpec) -> None:
    spec.charset = cur.word_or_string()


def _character(cur: Cursor, spec: ColumnSpec) -> None:
    cur.expect("SET")
    _charset(cur, spec)


def _fixed_charset(name: str) -> _AttributeParser:
    def handler(cur: Cursor, spec: ColumnSpec) -> None:
        spec.charset = name

    return handler


def _binary(cur: Cursor, spec: ColumnSpec) -> None:
    spec.binary = True
    if mysql_type(spec.type_name).family is Family.TEXT:
        spec.declared_type += " BINARY"  # Debezium takes the attribute for a part of the type's name.


def _unsigned(cur: Cursor, spec: ColumnSpec) -> None:
    spec.unsigned = True


def _signed(cur: Cursor, spec: ColumnSpec) -> None:
    spec.declared_type += " SIGNED"


def _zerofill(cur: Cursor, spec: ColumnSpec) -> None:
    spec.unsigned = spec.zerofill = True


def _srid(cur: Cursor, spec: ColumnSpec) -> None:
    spec.srid = cur.number()


def _visible(cur: Cursor, spec: ColumnSpec) -> None:
    spec.invisible = False


def _invisible(cur: Cursor, spec: ColumnSpec) -> None:
    spec.invisible = True


def _generated(cur: Cursor, spec: ColumnSpec) -> None:
    cur.expect("ALWAYS", "AS")
    _as(cur, spec)


def _as(cur: Cursor, spec: ColumnSpec) -> None:
    cur.skip_parentheses()
    spec.generated = True


def _no_argument(cur: Cursor, spec: ColumnSpec) -> None:
    """Take an attribute without argument that does not change the structure."""


def _skip_value(cur: Cursor, spec: ColumnSpec) -> None:
    cur.accept("=")
    cur.next()


def _constraint(cur: Cursor, spec: ColumnSpec) -> None:
    if not cur.matches("CHECK"):
        cur.name()
    cur.expect("CHECK")
    cur.skip_parentheses()


def _check(cur: Cursor, spec: ColumnSpec) -> None:
    cur.skip_parentheses()


def _references(cur: Cursor, spec: ColumnSpec) -> None:
    skip_references(cur)
    spec.references = True


def skip_references(cur: Cursor) -> None:
    """Step over what follows REFERENCES: a table, its columns, MATCH, ON DELETE and ON UPDATE."""
    cur.table_name()
    if cur.matches("("):
        cur.skip_parentheses()
    while True:
        if cur.accept("MATCH"):
            cur.next()
        elif cur.matches("ON") and cur.peek().upper in ("DELETE", "UPDATE"):
            cur.next()
            cur.next()
            if cur.accept_one_of("SET", "NO"):
                cur.next()
            elif not cur.accept_one_of("RESTRICT", "CASCADE"):
                cur.fail("expected a referential action")
        else:
            return


ATTRIBUTES: dict[str, _AttributeParser] = {
    "NOT": _not,
    "NULL": _null,
    "DEFAULT": _default,
    "ON": _on,
    "AUTO_INCREMENT": _auto_increment,
    "SERIAL": _serial_default,
    "UNIQUE": _unique,
    "PRIMARY": _primary,
    "KEY": _key,
    "COMMENT": _comment,
    "COLLATE": _collate,
    "CHARSET": _charset,
    "CHARACTER": _character,
    "CHAR": _character,
    "ASCII": _fixed_charset("latin1"),
    "UNICODE": _fixed_charset("ucs2"),
    "BYTE": _fixed_charset("binary"),
    "BINARY": _binary,
    "UNSIGNED": _unsigned,
    "SIGNED": _signed,
    "ZEROFILL": _zerofill,
    "SRID": _srid,
    "VISIBLE": _visible,
    "INVISIBLE": _invisible,
    "GENERATED": _generated,
    "AS": _as,
    "VIRTUAL": _no_argument,
    "STORED": _no_argument,
    "PERSISTENT": _no_argument,
    "COLUMN_FORMAT": _skip_value,
    "STORAGE": _skip_value,
    "ENGINE_ATTRIBUTE": _skip_value,
    "SECONDARY_ENGINE_ATTRIBUTE": _skip_value,
    "CONSTRAINT": _constraint,
    "CHECK": _check,
    "ENFORCED": _no_argument,
    "REFERENCES": _references,
}
"""What to do at each attribute's first word."""
