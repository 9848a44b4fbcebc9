"""Random DDL for a few tables, in random sessions. The server refuses some of it; what it logs must be understood."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import encode_lossy

CLIENTS = {
    "utf8mb4": "äÄß語ΣςİıK\u00a0\u3000😀Ω",
    "utf8mb3": "äÄß語ΣςİıK\u00a0",
    "latin1": "äÄßé€\x81\u00a0×",
    "cp1251": "жЖяЁ№\u00a0",
    "greek": "ΣςαΩ",
    "dec8": "äÄŒ×",
    "sjis": "表ソ能ｱ",
    "gbk": "乗乣表",
    "big5": "功許蓋",
    "binary": "äß語Σ",
}
MODES = (
    "",
    "ANSI_QUOTES",
    "NO_BACKSLASH_ESCAPES",
    "REAL_AS_FLOAT",
    "STRICT_TRANS_TABLES",
    "ANSI_QUOTES,NO_BACKSLASH_ESCAPES",
    "ANSI",
    "ANSI,NO_BACKSLASH_ESCAPES",
)
_BITS = {"ANSI_QUOTES": ANSI_QUOTES, "NO_BACKSLASH_ESCAPES": NO_BACKSLASH_ESCAPES}
_CHARSETS = ("latin1", "utf8mb4", "utf8mb3", "ucs2", "utf16", "utf32", "cp1251", "sjis", "gb18030", "binary", "ascii")
_COLLATIONS = ("utf8mb4_bin", "latin1_german1_ci", "utf8mb4_0900_as_cs", "utf8_bin", "binary")
_NUMBERS = ("NULL", "0", "1", "TRUE", "'7'", "+5", "0x42", "(1 + 2)")
_BITS_DEFAULTS = ("NULL", "0", "b'1'", "x'01'", "'1'")
_DATES = ("NULL", "'2020-01-02'", "'70-01-02'", "700102", "'19991231'", "0", "(CURRENT_DATE)")
_TIMES = ("NULL", "'10:11:12'", "'00:00:00'")
_NOW = ("NULL", "CURRENT_TIMESTAMP", "NOW(0)", "LOCALTIME", "'2020-01-02 03:04:05'", "'70-01-02 03:04:05'")
_NOW_6 = ("NULL", "CURRENT_TIMESTAMP(6)", "NOW( /* 6 */ 6)")
_NO_DEFAULTS = ("NULL", "''")
_BYTES = ("NULL", "''", "'ab'", "x'41'", "0xE4", "_binary'ab'")
_TYPES = {
    **dict.fromkeys(("INT", "INT(5)", "TINYINT(1)", "BOOL", "BIGINT UNSIGNED", "MEDIUMINT(6) ZEROFILL"), _NUMBERS),
    **dict.fromkeys(("INT3", "INT4 SIGNED", "DECIMAL", "DECIMAL(10,2)", "DECIMAL(19.5)", "NUMERIC(0)"), _NUMBERS),
    **dict.fromkeys(("FIXED(5,1) UNSIGNED", "FLOAT", "FLOAT(30)", "FLOAT(7,2)", "REAL", "REAL(9,3)"), _NUMBERS),
    **dict.fromkeys(("DOUBLE PRECISION", "FLOAT8", "SERIAL"), _NUMBERS),
    **dict.fromkeys(("BIT", "BIT(12)"), _BITS_DEFAULTS),
    **dict.fromkeys(("DATE",), _DATES),
    **dict.fromkeys(("TIME", "TIME(3)"), _TIMES),
    **dict.fromkeys(("DATETIME", "TIMESTAMP"), _NOW),
    **dict.fromkeys(("DATETIME(6)", "TIMESTAMP(6)"), _NOW_6),
    **dict.fromkeys(("YEAR", "YEAR(4)", "SQL_TSI_YEAR"), ("NULL", "69", "'70'", "'0'", "0", "2020")),
    **dict.fromkeys(("JSON", "POINT", "GEOMETRY SRID 4326", "GEOMCOLLECTION", "VECTOR(3)"), ("NULL",)),
    **dict.fromkeys(("BLOB", "BLOB(300)", "LONGBLOB", "LONG VARBINARY"), _NO_DEFAULTS),
    **dict.fromkeys(("BINARY(9)", "VARBINARY(300)"), _BYTES),
}
_STRINGS = ("CHAR", "CHAR(7)", "VARCHAR(20)", "VARCHAR(300)", "NCHAR(5)", "NATIONAL VARCHAR(8)", "CHAR VARYING(6)")
_TEXTS = ("TEXT", "TEXT(70)", "TINYTEXT", "MEDIUMTEXT", "LONG", "LONG VARCHAR")


@dataclass
class RandomSession:
    """Write statements of one session.

    Args:
        random: The source of chance.
        client: Its character set.
        mode: Its sql_mode.
    """

    random: Random
    client: str
    mode: str
    names: list[str] = field(default_factory=lambda: ["t", "T2", "u"])

    def settings(self) -> list[str]:
        """Return the statements that begin the session."""
        pick = self.random
        # Not binary: bytes that are no characters of their column are taken too.
        connection = pick.choice(("", "", "latin1", "utf8mb4")) if self.client != "binary" else ""
        return [
            f"SET NAMES {self.client}",
            "SET character_set_results = utf8mb4",
            *([f"SET character_set_connection = {connection}"] if connection else []),
            f"SET sql_mode = '{self.mode}'",
            f"SET sql_generate_invisible_primary_key = {pick.choice(('ON', 'OFF'))}",
            f"SET sql_quote_show_create = {pick.choice(('ON', 'ON', 'OFF'))}",
            f"SET explicit_defaults_for_timestamp = {pick.choice(('ON', 'ON', 'OFF'))}",
            f"SET default_collation_for_utf8mb4 = {pick.choice(('utf8mb4_0900_ai_ci', 'utf8mb4_general_ci'))}",
        ]

    def encoded(self, statement: str) -> bytes:
        """Return a statement as the session sends it."""
        return encode_lossy(statement, self.client)

    def statement(self) -> str:
        """Return the next statement."""
        kinds = (self._create,) * 4 + (self._alter,) * 10 + (self._copy,) * 3 + (self._other,) * 3 + (self._insert,) * 3
        return self.random.choice(kinds)()

    def _one(self, *texts: str) -> str:
        return self.random.choice(texts)

    def _maybe(self, text: str, chance: float = 0.5) -> str:
        return text if self.random.random() < chance else ""

    def _letters(self, count: int = 2) -> str:
        return "".join(self.random.choice("abXy" + CLIENTS[self.client]) for _ in range(self.random.randint(1, count)))

    def _quote(self, name: str) -> str:
        ansi = any(_BITS.get(m, 0) & ANSI_QUOTES for m in self.mode.split(","))
        quote = '"' if ansi and self._maybe("x") else "`"
        return quote + name + quote

    def _table(self) -> str:
        return self._quote(self.random.choice(self.names))

    def _new_table(self) -> str:
        if self._maybe("x", 0.2) and len(self.names) < 8:
            self.names.append(self._letters(3).strip() or "z")
        return self._table()

    def _column(self) -> str:
        return self._quote(self._one("a", "b", "B", "c", "id", "my_row_id", self._letters().strip() or "d"))

    def _text(self) -> str:
        escapes = not any(_BITS.get(m, 0) & NO_BACKSLASH_ESCAPES for m in self.mode.split(","))
        return "'" + self._letters(3) + self._one("", "", "''", "\\\\" if escapes else "\\", " ", "?") + "'"

    def _charset(self) -> str:
        clause = f"{self._one('CHARACTER SET', 'CHARSET')} {self.random.choice(_CHARSETS)} "
        return self._one("", "", clause, f"COLLATE {self.random.choice(_COLLATIONS)} ", "BINARY ", "ASCII ", "UNICODE ")

    def _type(self) -> tuple[str, str]:
        """Return a type with a default for it."""
        kind = self.random.random()
        if kind < 0.5:
            name = self.random.choice([*_TYPES])
            return f"{name} ", self.random.choice(_TYPES[name])
        if kind < 0.7:
            texts = ("NULL", "''", self._text(), self._text(), "x'4142'", "_latin1 X'E4'", "_utf8mb4'ab'", "(UUID())")
            return f"{self.random.choice(_STRINGS)} {self._charset()}", self._one(*texts)
        if kind < 0.8:
            return f"{self.random.choice(_TEXTS)} {self._charset()}", self.random.choice(_NO_DEFAULTS)
        members = [self._text() for _ in range(self.random.randint(1, 4))]
        return f"{self._one('ENUM', 'SET')}({','.join(members)}) {self._charset()}", self._one("NULL", *members)

    def _definition(self) -> str:
        kind, default = self._type()
        parts = [kind, self._one("", "", "NOT NULL ", "NULL "), self._maybe(f"DEFAULT {default} ", 0.4)]
        parts.append(self._maybe(f"COMMENT {self._text()} ", 0.2) + self._maybe("INVISIBLE ", 0.1))
        key = self._one("UNIQUE ", "PRIMARY KEY ", "AUTO_INCREMENT ", "AUTO_INCREMENT UNIQUE ")
        parts.append(self._maybe(key, 0.1) + self._maybe("ON UPDATE NOW() ", 0.05))
        return f"{self._column()} " + "".join(parts)

    def _key(self) -> str:
        columns = ", ".join(
            self._column() + self._maybe(f"({self._one('1', '3', '7', '20')})", 0.25)
            for _ in range(self.random.randint(1, 2))
        )
        return f"{self._one('UNIQUE', 'INDEX', 'UNIQUE KEY ' + self._column(), 'PRIMARY KEY', 'KEY')} ({columns})"

    def _options(self) -> str:
        options = (
            "ENGINE=InnoDB ",
            f"COMMENT={self._text()} ",
            "DEFAULT CHARSET=latin1 ",
            "COLLATE utf8mb4_bin ",
            "CHARSET utf8mb4 ",
        )
        return "".join(self._maybe(option, 0.2) for option in options)

    def _create(self) -> str:
        elements = [self._definition() for _ in range(self.random.randint(1, 4))]
        elements += [self._key() for _ in range(self.random.choice((0, 0, 1)))]
        exists = self._maybe("IF NOT EXISTS ", 0.4)
        return f"CREATE TABLE {exists}{self._new_table()} ({', '.join(elements)}) {self._options()}"

    def _copy(self) -> str:
        table, exists = self._table(), self._maybe("IF NOT EXISTS ", 0.3)
        return self._one(
            f"CREATE TABLE {exists}{self._new_table()} LIKE {table}",
            f"CREATE TABLE {exists}{self._new_table()} {self._options()}AS SELECT * FROM {table}",
            f"CREATE TABLE {exists}{self._new_table()} ({self._definition()}) SELECT *, 1 + 1 x FROM {table}",
            f"CREATE TEMPORARY TABLE tmp LIKE {table}",
            f"CREATE TEMPORARY TABLE tmp ({self._definition()}, {self._definition()}, {self._key()}) {self._options()}",
            f"CREATE TABLE {exists}{self._new_table()} LIKE tmp",
            "DROP TEMPORARY TABLE IF EXISTS tmp",
        )

    def _action(self) -> str:
        place = self._one("", "", " FIRST", f" AFTER {self._column()}")
        return self._one(
            f"ADD {self._definition()}{place}",
            f"ADD COLUMN ({self._definition()}, {self._definition()})",
            f"MODIFY {self._definition()}{place}",
            f"CHANGE {self._column()} {self._definition()}{place}",
            f"DROP {self._column()}",
            f"RENAME COLUMN {self._column()} TO {self._column()}",
            f"ALTER {self._column()} SET DEFAULT {self._one(self._text(), '1', 'NULL')}",
            f"ALTER {self._column()} DROP DEFAULT",
            f"ALTER {self._column()} SET {self._one('VISIBLE', 'INVISIBLE')}",
            f"ADD {self._key()}",
            self._convert(),
            self._one("DROP PRIMARY KEY", f"DROP INDEX {self._column()}", f"RENAME INDEX {self._column()} TO i"),
            f"{self._options()}",
            f"RENAME TO {self._new_table()}",
        )

    def _convert(self) -> str:
        collation = self._maybe(f" COLLATE {self.random.choice(_COLLATIONS)}", 0.2)
        return f"CONVERT TO CHARACTER SET {self.random.choice((*_CHARSETS, 'DEFAULT'))}{collation}"

    def _alter(self) -> str:
        actions = [self._action() for _ in range(self.random.choice((1, 1, 2, 3)))]
        return f"ALTER TABLE {self._table()} {', '.join(a for a in actions if a) or 'FORCE'}"

    def _other(self) -> str:
        view = self._quote("v")
        return self._one(
            f"DROP TABLE IF EXISTS {self._table()}",
            f"RENAME TABLE {self._table()} TO {self._new_table()}",
            f"CREATE UNIQUE INDEX {self._column()} ON {self._table()} ({self._column()})",
            f"DROP INDEX {self._column()} ON {self._table()}",
            f"TRUNCATE TABLE {self._table()}",
            f"CREATE VIEW {view} AS SELECT 1 AS x",
            f"CREATE TABLE IF NOT EXISTS {view} ({self._definition()}, {self._definition()})",
            f"DROP {self._one('VIEW', 'TABLE IF EXISTS', 'VIEW IF EXISTS')} {view}",
            f"ALTER DATABASE {self.random.choice(('CHARACTER SET latin1', 'COLLATE utf8mb4_bin', 'CHARSET utf8mb4'))}",
        )

    def _insert(self) -> str:
        return f"INSERT INTO {self._table()} () VALUES ()"
