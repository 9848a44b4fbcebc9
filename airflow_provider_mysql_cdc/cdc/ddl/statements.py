"""Parsed statements, as written: nothing is resolved against the tables known."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from airflow_provider_mysql_cdc.cdc.ddl.lexer import NameParts


class DefaultKind(Enum):
    """Say how a default value was written."""

    NULL = "null"
    TEXT = "text"
    NUMBER = "number"
    HEX = "hex"
    BITS = "bits"
    EXPRESSION = "expression"


@dataclass(frozen=True, slots=True)
class Default:
    """Hold a DEFAULT clause, or a member of ENUM or SET.

    Args:
        kind: How it was written.
        text: Its text: digits of hex and bit literals, expressions with parentheses.
        introducer: The character set that stands before a literal (``_latin1'...'``), or None.
    """

    kind: DefaultKind
    text: str = ""
    introducer: str | None = None


@dataclass(slots=True)
class ColumnSpec:
    """Hold a column definition as written.

    ``type_name`` and ``declared_type`` are ``Column.type_name`` and ``Column.declared_type``; ``members`` are
    literals of ENUM
    and SET; ``nullable`` and ``invisible`` are None where the definition does not say; ``binary`` is the attribute.
    """

    name: str
    type_name: str
    declared_type: str
    length: int | None = None
    scale: int | None = None
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None
    collation: str | None = None
    binary: bool = False
    members: tuple[Default, ...] = ()
    nullable: bool | None = None
    default: Default | None = None
    on_update: bool = False
    auto_increment: bool = False
    generated: bool = False
    comment: str | None = None
    srid: int | None = None
    invisible: bool = False
    primary: bool = False
    unique: bool = False
    references: bool = False


class DdlKeyKind(Enum):
    """Say what a key does."""

    PRIMARY = "primary"
    UNIQUE = "unique"
    PLAIN = "plain"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Hold one part of a key: a column (None for an expression) and the length of its prefix."""

    column: str | None
    prefix: int | None = None


@dataclass(frozen=True, slots=True)
class KeySpec:
    """Hold a key definition; ``name`` is None where the server chooses it."""

    kind: DdlKeyKind
    name: str | None
    parts: tuple[KeyPart, ...]


@dataclass(slots=True)
class TableOptions:
    """Hold table options; None where not given. ``charset`` DEFAULT stands as the empty string."""

    charset: str | None = None
    collation: str | None = None
    charset_is_last: bool = False
    comment: str | None = None
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE; ``like`` is set for CREATE TABLE ... LIKE, ``selects`` for IF NOT EXISTS with rows of a SELECT.

    It has no columns only with IF NOT EXISTS: of a name that a table or view has, or with a SELECT.
    """

    name: NameParts
    if_not_exists: bool = False
    like: NameParts | None = None
    columns: tuple[ColumnSpec, ...] = ()
    keys: tuple[KeySpec, ...] = ()
    options: TableOptions = field(default_factory=TableOptions)
    selects: bool = False


@dataclass(frozen=True, slots=True)
class AddColumn:
    """ADD COLUMN; ``position`` is None at the end, empty for FIRST, a name for AFTER."""

    spec: ColumnSpec
    position: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """CHANGE and MODIFY COLUMN; ``position`` as in AddColumn, None leaves the column where it is."""

    old: str
    spec: ColumnSpec
    position: str | None = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    """DROP COLUMN."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """RENAME COLUMN."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SetDefault:
    """ALTER COLUMN ... SET DEFAULT, or DROP DEFAULT when ``default`` is None."""

    name: str
    default: Default | None


@dataclass(frozen=True, slots=True)
class SetVisible:
    """ALTER COLUMN ... SET VISIBLE or INVISIBLE."""

    name: str
    invisible: bool


@dataclass(frozen=True, slots=True)
class AddKey:
    """ADD INDEX, KEY, UNIQUE, PRIMARY KEY, FOREIGN KEY, FULLTEXT, SPATIAL."""

    key: KeySpec


@dataclass(frozen=True, slots=True)
class DropKey:
    """DROP INDEX or DROP PRIMARY KEY (name ``PRIMARY``); ``constraint`` for DROP CONSTRAINT."""

    name: str
    constraint: bool = False


@dataclass(frozen=True, slots=True)
class RenameKey:
    """RENAME INDEX."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class RenameTo:
    """RENAME TO."""

    name: NameParts


@dataclass(frozen=True, slots=True)
class ConvertTo:
    """CONVERT TO CHARACTER SET; an empty ``charset`` is DEFAULT."""

    charset: str
    collation: str | None = None


@dataclass(frozen=True, slots=True)
class SetOptions:
    """Table options."""

    options: TableOptions


AlterAction = (
    AddColumn
    | ChangeColumn
    | DropColumn
    | RenameColumn
    | SetDefault
    | SetVisible
    | AddKey
    | DropKey
    | RenameKey
    | RenameTo
    | ConvertTo
    | SetOptions
)


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE; also CREATE INDEX and DROP INDEX (``index_only``)."""

    name: NameParts
    actions: tuple[AlterAction, ...]
    index_only: bool = False
    exchanged_tables: tuple[NameParts, ...] = ()


@dataclass(frozen=True, slots=True)
class DropTables:
    """DROP TABLE."""

    names: tuple[NameParts, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameTables:
    """RENAME TABLE: pairs (old, new), and each pair's text as written, led by the statement's first words."""

    pairs: tuple[tuple[NameParts, NameParts], ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """TRUNCATE TABLE."""

    name: NameParts


@dataclass(frozen=True, slots=True)
class DatabaseStatement:
    """CREATE, ALTER or DROP DATABASE; ``verb`` is the first word."""

    verb: str
    name: str | None
    if_not_exists: bool = False
    charset: str | None = None
    collation: str | None = None
    charset_is_last: bool = False


@dataclass(frozen=True, slots=True)
class UseDatabase:
    """USE."""

    name: str


@dataclass(frozen=True, slots=True)
class SetServerCharset:
    """SET character_set_server, collation_server, as a schema history records a server's defaults."""

    charset: str | None
    collation: str | None


ParsedStatement = (
    CreateTable
    | AlterTable
    | DropTables
    | RenameTables
    | TruncateTable
    | DatabaseStatement
    | UseDatabase
    | SetServerCharset
)
