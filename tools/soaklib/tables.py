"""The soak's tables, their first rows, and the triggers that note every change."""

from __future__ import annotations

from typing import Any

AUDIT = "audit"
OTHER = "soak_other"
SIGNALS = f"{OTHER}.signals"
BIG, ROWS = 900, 260

TABLES = {
    "a": "id INT PRIMARY KEY, v VARCHAR(40), n BIGINT UNSIGNED, ver INT NOT NULL DEFAULT 0",
    "b": "k1 VARCHAR(20) COLLATE utf8mb4_bin, k2 INT, d DECIMAL(9,3), ver INT NOT NULL DEFAULT 0, PRIMARY KEY (k1, k2)",
    "s": "k VARCHAR(30) PRIMARY KEY, t TEXT, ver INT NOT NULL DEFAULT 0",
    "c": "id INT PRIMARY KEY AUTO_INCREMENT, a INT, ver INT NOT NULL DEFAULT 0",
    "e": "d DATE, m DECIMAL(6,2), x BINARY(3), f DOUBLE, ver INT NOT NULL DEFAULT 0, PRIMARY KEY (d, m, x)",
    "k": "a INT, w VARCHAR(20), ver INT NOT NULL DEFAULT 0",
    "big": "id INT PRIMARY KEY, v VARCHAR(80), ver INT NOT NULL DEFAULT 0",
    "w": "id INT PRIMARY KEY, v VARCHAR(20), ver INT NOT NULL DEFAULT 0",
    "r0": "id INT PRIMARY KEY, v VARCHAR(20), ver INT NOT NULL DEFAULT 0",
}
KEYS = {"a": "id", "b": "k1, k2", "s": "k", "c": "id", "e": "d, m, x", "k": "", "big": "id", "w": "id", "r": "id"}
_FILL = """
INSERT INTO a (id, v, n) SELECT n, CONCAT('row ', n), n FROM seq WHERE n < {rows};
INSERT INTO b (k1, k2, d) SELECT CONCAT('key', n % 90), n, n / 8 FROM seq WHERE n < {rows};
INSERT INTO s (k, t) SELECT CONCAT('name ', n), REPEAT('é', n % 30) FROM seq WHERE n < {rows};
INSERT INTO c (a) SELECT n FROM seq WHERE n < {rows};
INSERT INTO e (d, m, x, f) SELECT '2024-01-01' + INTERVAL n DAY, n / 4, LPAD(n, 3, 'x'), n / 3 FROM seq WHERE n < 90;
INSERT INTO k (a, w) SELECT n % 7, CONCAT('w', n % 5) FROM seq WHERE n < 60;
INSERT INTO big (id, v) SELECT n, CONCAT('big ', n) FROM seq WHERE n < {big};
INSERT INTO w (id, v) SELECT n, 'w' FROM seq WHERE n < 40;
INSERT INTO r0 (id, v) SELECT n, 'r' FROM seq WHERE n < 60
"""


def triggers(table: str, label: str, mark: str) -> list[str]:
    """Return the triggers that note every change of a table in the audit table, in the same transaction."""
    columns = [c.strip() for c in KEYS[label].split(",") if c.strip()]
    moved = " OR ".join(f"NOT (CAST(OLD.{c} AS BINARY) <=> CAST(NEW.{c} AS BINARY))" for c in columns) or "FALSE"
    ops = {"INSERT": "'c'", "UPDATE": f"IF({moved}, 'k', 'u')", "DELETE": "'d'"}
    return [
        f"CREATE TRIGGER au_{mark}_{event.lower()} AFTER {event} ON {table} FOR EACH ROW "
        f"INSERT INTO {AUDIT} (tbl, op, mark) VALUES ('{label}', {op}, @soak_mark)"
        for event, op in ops.items()
    ]


def create(conn: Any, database: str, user: str) -> None:
    """Make the database with its tables, rows and triggers.

    Args:
        conn: A root connection.
        database: Its name; it is dropped first when it is there.
        user: The account of the jobs; it may write watermarks into the signal table.
    """
    with conn.cursor() as cursor:
        statements = [
            f"DROP DATABASE IF EXISTS {database}",
            f"CREATE DATABASE {database} CHARACTER SET utf8mb4",
            f"CREATE DATABASE IF NOT EXISTS {OTHER}",
            f"CREATE TABLE IF NOT EXISTS {OTHER}.noise (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(200))",
            f"CREATE TABLE IF NOT EXISTS {SIGNALS} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)",
            f"GRANT INSERT ON {SIGNALS} TO '{user}'@'%'",
            f"USE {database}",
            f"CREATE TABLE {AUDIT} "
            "(id BIGINT PRIMARY KEY AUTO_INCREMENT, tbl VARCHAR(9), op CHAR(1), mark VARCHAR(40))",
            "CREATE TEMPORARY TABLE seq (n INT PRIMARY KEY)",
            "SET SESSION cte_max_recursion_depth = 100000",
            f"INSERT INTO seq WITH RECURSIVE q (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM q WHERE n < {BIG}) "
            "SELECT n FROM q",
            *(f"CREATE TABLE {name} ({body})" for name, body in TABLES.items()),
            *_FILL.format(rows=ROWS, big=BIG).strip().split(";\n"),
            *(s for name in TABLES for s in triggers(name, name.rstrip("0"), name)),
            *(f"ANALYZE TABLE {name}" for name in TABLES),
        ]
        for statement in statements:
            cursor.execute(statement)
