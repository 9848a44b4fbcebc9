"""Values and keys that ALTER TABLE changes without row events."""

from __future__ import annotations

import pytest
from kit.cases import for_each
from kit.drain_rig import GIVEN

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.snapshot.unlogged_changes import altered_values

pytestmark = pytest.mark.req("STRM-13")
STRICT, LAX = 1 << 21, 0
TABLE = """CREATE TABLE a (id INT PRIMARY KEY, i INT, n DECIMAL(10,4), f FLOAT, v VARCHAR(20), c CHAR(9), l VARCHAR(9)
CHARSET latin1, b BINARY(4), vb VARBINARY(9), x TEXT, e ENUM('p','q'), s SET('p','q'), t DATETIME(3), ts TIMESTAMP NULL,
g INT AS (i + 1), bit BIT(4), hidden INT NOT NULL) ENGINE=InnoDB"""


def altered(sql: str, sql_mode: int = STRICT, **given: str) -> str:
    """Return what a statement did to the rows of d.a, which is captured without its column ``hidden``."""
    context = DdlContext("d", sql_mode=sql_mode)
    cfg = ConnectorConfig.from_properties(
        GIVEN | {"table.include.list": r"d\.[ab]", "column.exclude.list": r"d\.a\.hidden"} | given
    )
    before = apply_ddl(SchemaState(), TABLE, context).state
    found = altered_values(cfg, apply_ddl(before, sql, context), before, sql, context)
    assert all(change.adds_rows for change in found)
    return "; ".join(f"{change.table}: {change.what}" for change in found)


KEPT = (
    *("MODIFY i BIGINT", "MODIFY i INT NOT NULL", "MODIFY i SMALLINT", "MODIFY n DECIMAL(12,5)", "CHANGE i j BIGINT"),
    *("MODIFY v VARCHAR(40)", "MODIFY v TEXT", "MODIFY c VARCHAR(9)", "MODIFY x VARCHAR(9)", "MODIFY vb VARBINARY(10)"),
    *("CONVERT TO CHARACTER SET utf8mb4", "MODIFY l VARCHAR(9) CHARSET utf8mb4", "MODIFY e ENUM('q','r','p')"),
    *(
        "MODIFY s SET('p','q','r')",
        "MODIFY t DATETIME(6)",
        "RENAME COLUMN i TO j",
        "DROP COLUMN i",
        "ADD j INT DEFAULT 1",
    ),
    *("MODIFY i INT FIRST", "ALTER i SET DEFAULT 5", "ADD KEY (i)"),
    *(
        "DROP COLUMN hidden, ADD hidden INT DEFAULT 0",
        "MODIFY i INT COMMENT 'x', ENGINE=InnoDB",
        "MODIFY bit BIT(9)",
        "RENAME TO d.elsewhere, MODIFY n DECIMAL(9,1)",
    ),
)
CONVERTED = {
    "MODIFY n DECIMAL(10,2)": "n",
    "MODIFY n DECIMAL(10,2), MODIFY t DATETIME, RENAME TO b": "n, t",
    "CHANGE n m DECIMAL(9,3)": "m",
    "MODIFY i VARCHAR(9)": "i",
    "MODIFY f DOUBLE": "f",
    "MODIFY f FLOAT(7,2)": "f",
    "MODIFY v VARCHAR(10)": "v",
    "MODIFY v CHAR(20)": "v",
    "MODIFY b BINARY(5)": "b",
    "MODIFY vb BINARY(9)": "vb",
    "MODIFY e ENUM('p','Q')": "e",
    "MODIFY s SET('q','p')": "s",
    "MODIFY ts DATETIME": "ts",
    "MODIFY t DATETIME(2)": "t",
    "MODIFY g INT AS (i + 2)": "g",
    "MODIFY i INT NOT NULL AUTO_INCREMENT UNIQUE": "i",
}
LAX_ONLY = (
    *(
        "MODIFY i SMALLINT",
        "MODIFY i INT UNSIGNED",
        "MODIFY i INT NOT NULL",
        "MODIFY n DECIMAL(9,4)",
        "MODIFY bit BIT(3)",
    ),
    *("MODIFY x VARCHAR(9)", "MODIFY v VARCHAR(20) CHARSET latin1", "MODIFY f FLOAT UNSIGNED"),
)
OTHERS = {
    "DROP COLUMN i, ADD i INT DEFAULT 0": "i",
    "RENAME COLUMN i TO n, RENAME COLUMN n TO i": "n, i",
    "CHANGE v c VARCHAR(20), CHANGE c v CHAR(9)": "c, v",
    "DROP COLUMN i, RENAME COLUMN v TO i": "i",
}


@for_each("action", KEPT)
def test_what_keeps_values_and_keys_is_not_named(action: str) -> None:
    assert altered(f"ALTER TABLE a {action}") == ""


@for_each(("action", "columns"), list(CONVERTED.items()))
def test_columns_that_are_converted_are_named(action: str, columns: str) -> None:
    what = f": {columns} was converted, and its values in the rows that were there may be others now"
    assert altered(f"ALTER TABLE a {action}") == ("d.b" if "RENAME TO b" in action else "d.a") + what


@for_each("action", LAX_ONLY)
def test_what_a_strict_sql_mode_refuses_is_named_where_it_is_lax(action: str) -> None:
    assert altered(f"ALTER TABLE a {action}") == "" and "was converted" in altered(f"ALTER TABLE a {action}", LAX)


@for_each(("action", "columns"), list(OTHERS.items()))
def test_another_column_under_a_name_is_named(action: str, columns: str) -> None:
    assert f"d.a: {columns} is another column than the one that had this name" in altered(f"ALTER TABLE a {action}")


def test_another_key_is_named_and_a_schema_in_it_where_keys_have_one() -> None:
    flat = {"key.converter.schemas.enable": "false"}
    moved = "DROP PRIMARY KEY, ADD PRIMARY KEY (hidden)"
    assert "the key of its records is (hidden), it was (id): those of" in altered(f"ALTER TABLE a {moved}", **flat)
    assert "the key of its records is none, it was (id)" in altered("ALTER TABLE a DROP PRIMARY KEY")
    assert "the key of its records is (k), it was (id)" in altered("ALTER TABLE a RENAME COLUMN id TO k", **flat)
    assert "the schema in the key of its records changed" in altered("ALTER TABLE a MODIFY id BIGINT")
    assert altered("ALTER TABLE a MODIFY id BIGINT", **flat) == ""
    keyed = {"message.key.columns": r"d\.a:v"}
    assert altered(f"ALTER TABLE a {moved}", **keyed) == ""
    assert "the key of its records is (id), it was (v)" in altered("ALTER TABLE a DROP COLUMN v", **keyed)
