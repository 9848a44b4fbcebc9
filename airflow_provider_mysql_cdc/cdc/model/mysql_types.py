"""The column types of MySQL, one row for each: what is data about a type stands here, and nowhere else.

The layers read it when they compile a decoder or build a schema. What is code (how a value is rendered, encoded or
parsed) stands in their tables by ``Family``; ``tests/unit/model/test_mysql_types.py`` names those that lack an entry.

Source: MySQL 9.7 manual, chapter "Data Types"; MySQL source, ``rows_event.h`` (metadata in TABLE_MAP).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt

_OTHER_JDBC_TYPE = 1111
_NCHAR, _NVARCHAR = -15, -9  # java.sql.Types


class Family(StrEnum):
    """Name the types whose values are stored and written alike."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    BIT = "bit"
    TEXT = "text"
    BYTES = "bytes"
    ENUM = "enum"
    SET = "set"
    JSON = "json"
    DATE = "date"
    TIME = "time"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    YEAR = "year"
    GEOMETRY = "geometry"
    POINT = "point"
    VECTOR = "vector"
    UNKNOWN = "unknown"
    """A type that has no row; no table has an entry for it."""


TEMPORAL_FAMILIES = frozenset((Family.DATE, Family.TIME, Family.DATETIME, Family.TIMESTAMP))
SPATIAL_FAMILIES = frozenset((Family.GEOMETRY, Family.POINT))


class Metadata(StrEnum):
    """Say what TABLE_MAP holds of a column besides its type number."""

    NONE = "none"
    WIDTH = "width"
    """``MySqlType.width``."""
    FRACTION = "fraction digits"
    PRECISION = "precision and scale"
    BITS = "number of bits"
    LENGTH = "length in bytes"
    MEMBER_NUMBER = "bytes of a member's number"
    MEMBER_BITS = "bytes of a bit for each member"


METADATA_BYTES: Mapping[Metadata, int] = MappingProxyType(
    {**dict.fromkeys(Metadata, 2), Metadata.NONE: 0, Metadata.WIDTH: 1, Metadata.FRACTION: 1}
)


class WireFormat(NamedTuple):
    """Describe one format in which a type's values stand in the binlog.

    Args:
        code: Its number in TABLE_MAP; ENUM and SET hide theirs behind STRING.
        metadata: What TABLE_MAP holds besides it.
        native_op: The native kernel's name of the format, where it needs one.
    """

    code: int
    metadata: Metadata = Metadata.NONE
    native_op: str = ""


class Synonym(NamedTuple):
    """Describe other words for a type in statements.

    Args:
        words: The words, in upper case.
        jdbc_type: Their number of java.sql.Types, where it is not the type's.
        national: Whether they stand for character set utf8mb3.
    """

    words: str
    jdbc_type: int | None = None
    national: bool = False


@dataclass(frozen=True, slots=True)
class MySqlType:
    """Describe a column type.

    Args:
        name: As in INFORMATION_SCHEMA, in upper case; ``Column.type_name``.
        family: How its values are stored and written.
        formats: Formats in the binlog, the present one first; the others, from before MySQL 5.6.4, have no fraction.
        width: Bytes of a number or temporal value, or of the length before a value; 0 where the metadata says it.
        synonyms: Other words for it.
        jdbc_type: Number of java.sql.Types, as Debezium's MySQL parser assigns it.
        unsigned: Whether it can be UNSIGNED.
        in_signedness_list: Whether TABLE_MAP lists its signedness.
        in_charset_list: Whether TABLE_MAP lists its character set among those of character columns.
        collated: Whether it has a character set.
        needs_length: Whether a declaration must have a length.
        default_length: Length of a column that is declared without one.
        schema_change_length: Length that schema changes show then.
        binary_type: Type that the character set ``binary`` makes of it.
        literal_default: Whether it can have a literal as default.
        updates_itself: Whether it can have ON UPDATE CURRENT_TIMESTAMP.
        key_range: Whether values can be the bounds of a key range.
        unavailable: What an unknown value is written as: ``text``, ``bytes``, or empty where no placeholder fits.
        connect_type: Connect's literal type; empty where modes or other properties of the column decide.
        unsigned_connect_type: That of UNSIGNED columns, where it differs.
        semantic_type: Debezium's name of the schema, or empty.
        tidb_type: ``tidb_type`` in TiCDC's Avro protocol; empty where TiDB does not have the type.
        tidb_avro_type: Its Avro type there.
        unsigned_tidb_avro_type: That of UNSIGNED columns, where it differs.
        direct_avro: Whether values are written as Avro directly; otherwise they are converted by way of JSON, and the
            native kernel does not write them as Avro.
    """

    name: str
    family: Family
    formats: tuple[WireFormat, ...]
    width: int = 0
    synonyms: tuple[Synonym, ...] = ()
    jdbc_type: int = _OTHER_JDBC_TYPE
    unsigned: bool = False
    in_signedness_list: bool = False
    in_charset_list: bool = False
    collated: bool = False
    needs_length: bool = False
    default_length: int | None = None
    schema_change_length: int | None = None
    binary_type: str = ""
    literal_default: bool = False
    updates_itself: bool = False
    key_range: bool = False
    unavailable: str = ""
    connect_type: str = ""
    unsigned_connect_type: str = ""
    semantic_type: str = ""
    tidb_type: str = ""
    tidb_avro_type: str = ""
    unsigned_tidb_avro_type: str = ""
    direct_avro: bool = True

    @property
    def has_members(self) -> bool:
        """Return whether the declaration lists the values."""
        return self.family in (Family.ENUM, Family.SET)

    def wire_format(self, code: int) -> WireFormat | None:
        """Return the format of a type number, or None for one that the type cannot have.

        Args:
            code: From TABLE_MAP.
        """
        if code in wt.STRING_CODES and self.formats and self.formats[0].code in wt.STRING_CODES:
            return self.formats[0]
        return next((form for form in self.formats if form.code == code), None)


def _synonyms(*words: str, jdbc_type: int | None = None, national: bool = False) -> tuple[Synonym, ...]:
    return tuple(Synonym(each, jdbc_type, national) for each in words)


def _one(code: int, metadata: Metadata = Metadata.NONE, native_op: str = "") -> tuple[WireFormat, ...]:
    return (WireFormat(code, metadata, native_op),)


# -- what the types of a family have in common ---------------------------------------------------------------------
_number = partial(MySqlType, unsigned=True, in_signedness_list=True, literal_default=True)
_integer = partial(_number, family=Family.INTEGER, key_range=True, tidb_type="INT", tidb_avro_type="int")
_text = partial(
    MySqlType,
    family=Family.TEXT,
    jdbc_type=12,
    in_charset_list=True,
    collated=True,
    unavailable="text",
    tidb_type="TEXT",
    tidb_avro_type="string",
)
_bytes = partial(
    MySqlType,
    family=Family.BYTES,
    jdbc_type=2004,
    in_charset_list=True,
    unavailable="bytes",
    tidb_type="BLOB",
    tidb_avro_type="bytes",
)
_members = partial(
    MySqlType,
    jdbc_type=1,
    collated=True,
    literal_default=True,
    unavailable="text",
    connect_type="string",
    tidb_avro_type="string",
)
_temporal = partial(MySqlType, literal_default=True, key_range=True, tidb_avro_type="string")
_spatial = partial(
    MySqlType,
    family=Family.GEOMETRY,
    formats=_one(wt.GEOMETRY, Metadata.WIDTH, "geometry"),
    width=4,
    connect_type="struct",
    semantic_type="io.debezium.data.geometry.Geometry",
    direct_avro=False,
)

# fmt: off
_ROWS = (
    _integer("TINYINT", formats=_one(wt.TINY), width=1, jdbc_type=5, connect_type="int16",
             synonyms=(*_synonyms("INT1"), *_synonyms("BOOL", "BOOLEAN", jdbc_type=16))),
    _integer("SMALLINT", formats=_one(wt.SHORT), width=2, jdbc_type=5, connect_type="int16",
             unsigned_connect_type="int32", synonyms=_synonyms("INT2")),
    _integer("MEDIUMINT", formats=_one(wt.INT24), width=3, jdbc_type=4, connect_type="int32",
             synonyms=_synonyms("INT3", "MIDDLEINT")),
    _integer("INT", formats=_one(wt.LONG), width=4, jdbc_type=4, connect_type="int32", unsigned_connect_type="int64",
             unsigned_tidb_avro_type="long", synonyms=_synonyms("INT4", "INTEGER")),
    _integer("BIGINT", formats=_one(wt.LONGLONG), width=8, jdbc_type=-5, connect_type="int64",
             tidb_type="BIGINT", tidb_avro_type="long", synonyms=_synonyms("INT8", "SERIAL")),
    _number("DECIMAL", Family.DECIMAL, _one(wt.NEWDECIMAL, Metadata.PRECISION), jdbc_type=3, default_length=10,
            schema_change_length=10, key_range=True, tidb_type="DECIMAL", tidb_avro_type="bytes",
            synonyms=(*_synonyms("DEC", "FIXED"), *_synonyms("NUMERIC", jdbc_type=2))),
    _number("FLOAT", Family.FLOAT, _one(wt.FLOAT, Metadata.WIDTH), width=4, jdbc_type=6,
            tidb_type="FLOAT", tidb_avro_type="double", synonyms=_synonyms("FLOAT4")),
    _number("DOUBLE", Family.DOUBLE, _one(wt.DOUBLE, Metadata.WIDTH), width=8, jdbc_type=8,
            tidb_type="DOUBLE", tidb_avro_type="double",
            synonyms=(*_synonyms("FLOAT8", "DOUBLE PRECISION"), *_synonyms("REAL", jdbc_type=7))),
    MySqlType("BIT", Family.BIT, _one(wt.BIT, Metadata.BITS), jdbc_type=-7, default_length=1, schema_change_length=1,
              literal_default=True, tidb_type="BIT", tidb_avro_type="bytes"),
    _text("CHAR", formats=_one(wt.STRING, Metadata.LENGTH), jdbc_type=1, default_length=1, binary_type="BINARY",
          literal_default=True, key_range=True,
          synonyms=(*_synonyms("CHARACTER"),
                   *_synonyms("NCHAR", "NATIONAL CHAR", "NATIONAL CHARACTER", jdbc_type=_NCHAR, national=True))),
    _text("VARCHAR", formats=_one(wt.VARCHAR, Metadata.LENGTH), needs_length=True, binary_type="VARBINARY",
          literal_default=True, key_range=True,
          synonyms=(*_synonyms("CHAR VARYING", "CHARACTER VARYING", "VARCHARACTER"),
                   *_synonyms("NVARCHAR", "NCHAR VARYING", "NCHAR VARCHAR", "NCHAR VARCHARACTER", "NATIONAL VARCHAR",
                             "NATIONAL VARCHARACTER", "NATIONAL CHAR VARYING", "NATIONAL CHARACTER VARYING",
                             jdbc_type=_NVARCHAR, national=True))),
    _text("TINYTEXT", formats=_one(wt.BLOB, Metadata.WIDTH), width=1, binary_type="TINYBLOB"),
    _text("TEXT", formats=_one(wt.BLOB, Metadata.WIDTH), width=2, binary_type="BLOB"),
    _text("MEDIUMTEXT", formats=_one(wt.BLOB, Metadata.WIDTH), width=3, binary_type="MEDIUMBLOB",
          synonyms=_synonyms("LONG", "LONG VARCHAR", "LONG VARCHARACTER", "LONG CHAR VARYING",
                             "LONG CHARACTER VARYING")),
    _text("LONGTEXT", formats=_one(wt.BLOB, Metadata.WIDTH), width=4, binary_type="LONGBLOB"),
    _bytes("BINARY", formats=_one(wt.STRING, Metadata.LENGTH), jdbc_type=-2, default_length=1,
           literal_default=True, key_range=True),
    _bytes("VARBINARY", formats=_one(wt.VARCHAR, Metadata.LENGTH), jdbc_type=-3, needs_length=True,
           literal_default=True, key_range=True),
    _bytes("TINYBLOB", formats=_one(wt.BLOB, Metadata.WIDTH), width=1),
    _bytes("BLOB", formats=_one(wt.BLOB, Metadata.WIDTH), width=2),
    _bytes("MEDIUMBLOB", formats=_one(wt.BLOB, Metadata.WIDTH), width=3, synonyms=_synonyms("LONG VARBINARY")),
    _bytes("LONGBLOB", formats=_one(wt.BLOB, Metadata.WIDTH), width=4),
    _temporal("DATE", Family.DATE, (WireFormat(wt.DATE, native_op="date"), WireFormat(wt.NEWDATE, native_op="date")),
              width=3, jdbc_type=91, tidb_type="DATE"),
    _temporal("TIME", Family.TIME,
              (WireFormat(wt.TIME2, Metadata.FRACTION, "time"), WireFormat(wt.TIME, native_op="old_time")),
              jdbc_type=92, tidb_type="TIME"),
    _temporal("DATETIME", Family.DATETIME,
              (WireFormat(wt.DATETIME2, Metadata.FRACTION, "datetime"),
               WireFormat(wt.DATETIME, native_op="old_datetime")),
              jdbc_type=93, updates_itself=True, tidb_type="DATETIME"),
    _temporal("TIMESTAMP", Family.TIMESTAMP,
              (WireFormat(wt.TIMESTAMP2, Metadata.FRACTION, "timestamp"),
               WireFormat(wt.TIMESTAMP, native_op="old_timestamp")),
              jdbc_type=2014, updates_itself=True, connect_type="string",
              semantic_type="io.debezium.time.ZonedTimestamp", tidb_type="TIMESTAMP"),
    _temporal("YEAR", Family.YEAR, _one(wt.YEAR, native_op="year"), width=1, jdbc_type=4, in_signedness_list=True,
              connect_type="int32", semantic_type="io.debezium.time.Year", tidb_type="YEAR", tidb_avro_type="int",
              synonyms=_synonyms("SQL_TSI_YEAR")),
    _members("ENUM", Family.ENUM, _one(wt.ENUM, Metadata.MEMBER_NUMBER), schema_change_length=1,
             semantic_type="io.debezium.data.Enum", tidb_type="ENUM"),
    _members("SET", Family.SET, _one(wt.SET, Metadata.MEMBER_BITS),
             semantic_type="io.debezium.data.EnumSet", tidb_type="SET"),
    MySqlType("JSON", Family.JSON, _one(wt.JSON, Metadata.WIDTH, "json"), width=4, unavailable="text",
              connect_type="string", semantic_type="io.debezium.data.Json", tidb_type="JSON", tidb_avro_type="string"),
    _spatial("GEOMETRY"),
    _spatial("POINT", family=Family.POINT, formats=_one(wt.GEOMETRY, Metadata.WIDTH, "point"),
             semantic_type="io.debezium.data.geometry.Point"),
    _spatial("LINESTRING"),
    _spatial("POLYGON"),
    _spatial("MULTIPOINT"),
    _spatial("MULTILINESTRING"),
    _spatial("MULTIPOLYGON"),
    _spatial("GEOMETRYCOLLECTION", synonyms=_synonyms("GEOMCOLLECTION")),
    # VECTOR columns have a character set (binary) in TABLE_MAP's list as well (9.7.4, seen in its events).
    MySqlType("VECTOR", Family.VECTOR, _one(wt.VECTOR, Metadata.WIDTH, "vector"), width=4, in_charset_list=True,
              needs_length=True, connect_type="array", semantic_type="io.debezium.data.FloatVector",
              tidb_type="TiDBVECTORFloat32", tidb_avro_type="string", direct_avro=False),
)
# fmt: on
MYSQL_TYPES: Mapping[str, MySqlType] = MappingProxyType({row.name: row for row in _ROWS})
"""The types by their names."""
_UNKNOWN_TYPE = MySqlType("", Family.UNKNOWN, ())


def mysql_type(name: str) -> MySqlType:
    """Return the row of a type; one of family UNKNOWN for a name that has none.

    Args:
        name: ``Column.type_name``.
    """
    return MYSQL_TYPES.get(name, _UNKNOWN_TYPE)


def type_names(*families: Family) -> tuple[str, ...]:
    """Return the names of the types of some families, those of strings by size.

    Args:
        families: The families.
    """
    return tuple(row.name for row in _ROWS if row.family in families)


class TypeWords(NamedTuple):
    """Say what the words of a statement mean.

    Args:
        type_name: The type.
        jdbc_type: Number of java.sql.Types.
        national: Whether they stand for character set utf8mb3.
    """

    type_name: str
    jdbc_type: int
    national: bool = False


TYPE_BY_WORDS: Mapping[str, TypeWords] = MappingProxyType(
    {
        **{row.name: TypeWords(row.name, row.jdbc_type) for row in _ROWS},
        **{
            synonym.words: TypeWords(
                row.name, row.jdbc_type if synonym.jdbc_type is None else synonym.jdbc_type, synonym.national
            )
            for row in _ROWS
            for synonym in row.synonyms
        },
    }
)
"""Types by all words that name them: their own names and synonyms."""
_ATTRIBUTES = (" SIGNED", " BINARY")


def type_words(declared_type: str) -> TypeWords | None:
    """Return what the words of a declaration mean; None for words that name no type.

    Args:
        declared_type: ``Column.declared_type``: the words, and the attribute SIGNED or BINARY.
    """
    if declared_type not in TYPE_BY_WORDS and declared_type.endswith(_ATTRIBUTES):
        declared_type = declared_type.rpartition(" ")[0]
    return TYPE_BY_WORDS.get(declared_type)


TEXT_BY_SIZE = tuple(row.name for row in _ROWS if row.family is Family.TEXT and row.formats[0].code == wt.BLOB)
BLOB_BY_SIZE = tuple(row.name for row in _ROWS if row.family is Family.BYTES and row.formats[0].code == wt.BLOB)
"""Types without a declared length: TINY, plain, MEDIUM, LONG."""
