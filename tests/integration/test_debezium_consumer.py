"""A reader of Debezium events that was not written here rebuilds our tables: Debezium's JDBC sink connector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.consumer_rig import Rebuilt, column_types, contents, jdbc_sink
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

# What the sink gets wrong with Debezium's own events as well is left out: quotes and commas inside the members of an
# ENUM (it writes them into DDL unquoted), and geographic spatial references (it swaps the axes).
TABLES = {
    "numbers": "id INT PRIMARY KEY, t TINYINT, tu TINYINT UNSIGNED, s SMALLINT, su SMALLINT UNSIGNED, m MEDIUMINT, "
    "mu MEDIUMINT UNSIGNED, i INT, iu INT UNSIGNED, b BIGINT, bu BIGINT UNSIGNED, d DECIMAL(20,6), "
    "n DECIMAL(5,0) NOT NULL DEFAULT 7, f FLOAT, r DOUBLE, y YEAR, b1 BIT(1), b24 BIT(24), yes BOOLEAN",
    "texts": "id BIGINT AUTO_INCREMENT PRIMARY KEY, c CHAR(9), v VARCHAR(80), l VARCHAR(80) CHARACTER SET latin1, "
    "t TEXT, lt LONGTEXT CHARACTER SET latin1, bi BINARY(4), vb VARBINARY(40), bl BLOB, j JSON, "
    "e ENUM('small','très grand'), s SET('a','b','c'), `select` VARCHAR(20) DEFAULT 'x'",
    "times": "id INT PRIMARY KEY, d DATE, t TIME, t6 TIME(6), dt DATETIME, dt3 DATETIME(3), dt6 DATETIME(6), "
    "ts TIMESTAMP NULL, ts6 TIMESTAMP(6) NULL DEFAULT NULL",
    "places": "id INT PRIMARY KEY, p POINT SRID 3857, g GEOMETRY",
    "pairs": "a INT, b VARCHAR(30), v INT, PRIMARY KEY (a, b)",
    "names": "k VARCHAR(30) CHARACTER SET latin1 COLLATE latin1_bin PRIMARY KEY, v VARCHAR(30) CHARACTER SET latin1",
    "stock": "id INT PRIMARY KEY, qty INT",
    "visits": "who VARCHAR(20) NOT NULL, day DATE NOT NULL, n INT",
    "cleared": "id INT PRIMARY KEY, v INT",
}

BEFORE = (
    "INSERT INTO numbers VALUES (1, -128, 255, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295, "
    "-9223372036854775808, 18446744073709551615, -12345678901234.567891, 99999, 0.1, 1e300, 2155, b'1', b'1010', TRUE)",
    "INSERT INTO numbers (id) VALUES (2), (3)",
    "INSERT INTO texts VALUES (1, 'ab', '漢字 😀', 'Müßiggang €', 'line\\nline \"q\" \\\\', 'é', 'ab', x'00ff7f', "
    'x\'deadbeef00\', \'{"a": [1, 2.5, null, true, "ä😀"], "b": {"c": 12345678901234567890}}\', \'très grand\', '
    "'a,c', 'y')",
    "INSERT INTO texts (id) VALUES (2)",
    "INSERT INTO texts VALUES (3, '', '', '', '', '', '', '', '', '[]', 'small', '', '')",
    "INSERT INTO times VALUES (1, '2024-02-29', '23:59:59', '12:34:56.123456', '2024-02-29 23:59:59', "
    "'1969-12-31 23:59:59.999', '2999-12-31 23:59:59.999999', '2038-01-19 03:14:07', '1970-01-01 00:00:01.000001')",
    "INSERT INTO times (id) VALUES (2), (3)",
    "INSERT INTO places VALUES (1, ST_SRID(POINT(10, 20), 3857), ST_GeomFromText('LINESTRING(0 0, 1.5 -2)')), "
    "(2, NULL, NULL)",
    "INSERT INTO pairs VALUES (1, 'x', 1), (1, 'y', 2), (2, 'x', 3), (2, 'z', NULL)",
    "INSERT INTO names VALUES ('Ärger', 'Müller'), ('arger', 'x'), ('Arger', 'y'), ('b', NULL)",
    "INSERT INTO stock VALUES (1, 10), (2, 20), (3, 30)",
    "INSERT INTO visits VALUES ('ann', '2024-01-01', 1), ('ann', '2024-01-02', 2), ('bob', '2024-01-01', 3)",
    "INSERT INTO cleared VALUES (1, 1), (2, 2)",
)

AFTER = (
    "UPDATE numbers SET t = 127, tu = 0, bu = 9223372036854775808, d = 0.000001, f = -3.4e38, b1 = b'0', "
    "b24 = b'100000001111111100000010', yes = NULL WHERE id = 1",
    "UPDATE numbers SET id = 20, n = -99999, r = -0.1, y = 1901 WHERE id = 2",
    "DELETE FROM numbers WHERE id = 3",
    "INSERT INTO numbers SELECT 4, t, tu, s, su, m, mu, i, iu, b, bu, d, n, f, r, y, b1, b24, yes FROM numbers "
    "WHERE id = 1",
    "UPDATE texts SET v = 'Ω', l = 'ÿ', bl = REPEAT(x'00', 3000), t = REPEAT('ü', 5000), e = NULL, s = 'b', "
    "j = JSON_SET(j, '$.a', 1e-5) WHERE id = 1",
    "UPDATE texts SET c = 'was null', j = 'null' WHERE id = 2",
    "DELETE FROM texts WHERE id = 3",
    "INSERT INTO texts (v, j, e, `select`) VALUES ('new', '\"text\"', 'small', NULL)",
    "UPDATE times SET d = '1000-01-01', t = '00:00:00', dt6 = '1000-01-01 00:00:00.000001', ts6 = NULL WHERE id = 1",
    "UPDATE times SET id = 30, ts = '2021-06-01 12:00:00' WHERE id = 3",
    "UPDATE places SET p = ST_SRID(POINT(-1, 0.25), 3857), g = POINT(3, 4) WHERE id = 2",
    "UPDATE pairs SET b = 'moved' WHERE a = 1 AND b = 'x'",
    "BEGIN",
    "DELETE FROM pairs WHERE a = 2 AND b = 'x'",
    "INSERT INTO pairs VALUES (2, 'x', 33)",
    "UPDATE pairs SET a = 9 WHERE a = 2",
    "COMMIT",
    "UPDATE names SET k = 'Österreich' WHERE k = 'Ärger'",
    "UPDATE names SET v = 'ß' WHERE k = 'b'",
    "DELETE FROM names WHERE k = 'Arger'",
    "UPDATE stock SET qty = 11 WHERE id = 1",
    "ALTER TABLE stock ADD COLUMN price DECIMAL(8,2) NULL, ADD COLUMN note VARCHAR(40) NULL",
    "UPDATE stock SET price = 1.50, note = 'neu' WHERE id = 2",
    "INSERT INTO stock VALUES (4, 40, 99.99, NULL)",
    "DELETE FROM stock WHERE id = 3",
    "UPDATE visits SET n = 22 WHERE day = '2024-01-02'",
    "DELETE FROM visits WHERE who = 'bob'",
    "INSERT INTO visits VALUES ('cid', '2024-03-01', NULL)",
    "TRUNCATE TABLE cleared",
    "INSERT INTO cleared VALUES (2, 22), (5, 55)",
)


# Types the sink can only know from the source's, which the events name on request (never in the key's schema).
# It has no BINARY(n) and makes VARBINARY(n) of it.
PROPAGATED = {
    "numbers": {"t": "tinyint", "s": "smallint", "m": "mediumint", "i": "int", "b": "bigint", "y": "year"},
    "texts": {"c": "char(9)", "v": "varchar(80)", "vb": "varbinary(40)", "s": "set('a','b','c')"},
}
SPREAD = {
    "topic.creation.default.partitions": "3",
    "drain.writers": "3",
    "drain.small.batch.bytes": "0",
    "column.propagate.source.type": ".*",
}


@pytest.fixture
def pipelines(properties: dict[str, str], database: str) -> dict[str, Pipeline]:
    """Return two pipelines of the same tables: the second has three writers, three partitions and source types."""
    plain = properties | {
        # The default writes the upper half of BIGINT UNSIGNED as negative numbers, which no reader can undo.
        "bigint.unsigned.handling.mode": "precise",
        "message.key.columns": f"{database}.visits:who,day",
        "skipped.operations": "none",
    }
    spread = plain | SPREAD | {"topic.prefix": f"{properties['topic.prefix']}_spread"}
    return {"default": Pipeline(plain), "spread": Pipeline(spread)}


def run(root: Any, database: str, *statements: str) -> None:
    execute(root, f"USE `{database}`", "SET SESSION time_zone = '+00:00'", *statements)


def check(root: Any, database: str, rebuilt: Rebuilt, tables: list[str], when: str) -> None:
    rebuilt.wait()
    for table in tables:
        types = column_types(root, database, table)
        source = contents(root, database, table, types)
        assert source, f"{table} is empty {when}, which would prove nothing"
        assert rebuilt.contents(root, table, types) == source, f"{table} {when}"


@pytest.mark.req("EVT-26", "EVT-33")
@pytest.mark.exhaustive
def test_debeziums_jdbc_sink_rebuilds_the_tables(
    pipelines: dict[str, Pipeline], stack: Any, root: Any, database: str, tmp_path: Path
) -> None:
    """One sink reads what two pipelines write of the same source, and rebuilds the tables of both."""
    # A truncate event has no key, hence no order with rows of other partitions (true of Debezium's own as well).
    tables = {"default": list(TABLES), "spread": [table for table in TABLES if table != "cleared"]}
    run(root, database, *(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()), *BEFORE)
    for which, pipeline in pipelines.items():
        assert pipeline.snapshot().complete, which
    with jdbc_sink(stack, root, [(p, tables[which]) for which, p in pipelines.items()], tmp_path) as found:
        every = dict(zip(pipelines, found, strict=True))
        for which, rebuilt in every.items():
            check(root, database, rebuilt, tables[which], f"of {which} after the snapshot")
        run(root, database, *AFTER)
        for which, pipeline in pipelines.items():
            outcome = pipeline.drain()
            assert outcome is not None and outcome.complete, which
        for which, rebuilt in every.items():
            check(root, database, rebuilt, tables[which], f"of {which} after the drain")
        spread = every["spread"]
        for table, wanted in PROPAGATED.items():
            types = column_types(root, spread.database, spread.table(table), whole=True)
            assert {name: types[name] for name in wanted} == wanted
