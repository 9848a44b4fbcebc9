"""Signals that nobody should send: the drain goes on, each is refused by name or does what it says, no more."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kit.incremental_rig import FLAT, books, check_exact, reads
from kit.signals import send
from kit.sql import execute, rows
from kit.table_rig import filled
from kit.window_rig import SIGNALS, same_as_table
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.incremental import drain_job as rounds
from airflow_provider_mysql_cdc.cdc.incremental import window_driver as round_driver


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    """Return a stream of a table ``a`` of 40 rows with a signal table, behind its first snapshot."""
    made = Pipeline(
        properties
        | FLAT
        | {
            "table.include.list": f"{database}.a",
            "signal.data.collection": f"{database}.signals",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": f"{properties['topic.prefix']}.notes",
        },
        slots=1,
    )
    wide = SIGNALS.replace("TEXT", "LONGTEXT").format(database)
    execute(root, *filled(database, "a", "b", count=40), wide)
    execute(root, f"GRANT INSERT, DELETE ON `{database}`.signals TO {properties['database.user']}")
    made.snapshot()
    return made


def insert(root: Any, db: str, *signals: tuple[str, str, str]) -> None:
    with root.cursor() as cursor:
        cursor.executemany(f"INSERT INTO `{db}`.signals VALUES (%s, %s, %s)", signals)


def asked(db: str, condition: str | None = None, **more: Any) -> str:
    conditions = [] if condition is None else [{"data-collection": f"{db}.a", "filter": condition}]
    return json.dumps({"data-collections": [f"{db}.a"], "additional-conditions": conditions, **more})


def states(pipeline: Pipeline) -> list[str]:
    return [scan.state for _, scan in sorted(books(pipeline).scans.items())]


def refused(pipeline: Pipeline) -> dict[str, str]:
    return {name: found.reason for name, found in books(pipeline).requests.items() if found.verdict == "refused"}


GROWING = {"control characters": "\x01", "quotes": '"', "backslashes": "\\", "emoji": "\U0001f600"}


@pytest.mark.req("INC-32")
def test_data_that_grows_in_a_record_stops_no_drain(pipeline: Pipeline, root: Any, database: str) -> None:
    """A ledger record is JSON: a control character takes six bytes there, a quote two."""
    big = {what: text * (520_000 // len(text.encode())) for what, text in GROWING.items()}
    signals = ((what, "log", data) for what, data in big.items())
    insert(root, database, *signals, ("ask", "execute-snapshot", asked(database)))
    execute(root, f"UPDATE `{database}`.a SET v = 1")
    pipeline.drain()
    assert set(refused(pipeline)) == set(GROWING) and states(pipeline) == ["done"]
    check_exact(pipeline, root, "a")


ESCAPES = {
    "closed early": "id < 0) OR (id >= 0",
    "another table": "id < 0) UNION SELECT 1, 2 FROM b WHERE (1",
    "no end": "id < 0) OR 1=1 -- ",
    "hash": "id < 0) OR 1=1 #",
    "open comment": "id >= 0) /*",
    "executable comment": "id < 0 /*! ) OR (1=1 */",
    "quoted": "id < 0) OR ('a' = \"a'\"",
    "open string": "v = 'a",
    "another statement": "1; DROP TABLE a",
    "opened": "(id >= 0",
}


@pytest.mark.req("INC-29")
def test_a_condition_ends_where_its_parentheses_end(pipeline: Pipeline, root: Any, database: str) -> None:
    signals = ((name, "execute-snapshot", asked(database, condition)) for name, condition in ESCAPES.items())
    insert(root, database, *signals)
    execute(root, f"UPDATE `{database}`.a SET v = 1 WHERE id = 3")
    pipeline.drain()
    assert set(refused(pipeline)) == set(ESCAPES), states(pipeline)
    assert reads(pipeline, "a") == {}
    check_exact(pipeline, root, "a")


def test_conditions_that_the_server_takes_are_carried_out_or_given_up(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    taken = {
        "0": "id < 20 -- the first ones",
        "1": "v = 0 AND 'x)' <> \"y(\" AND `id` >= 20 /* ) */",
        "2": "id IN (SELECT id FROM information_schema.tables RIGHT JOIN (SELECT 7 AS id) AS s ON 1 = 0)",
        "3": "SLEEP(0.001) = 0 AND id = 8",
    }
    given_up = {
        "4": f"id IN (SELECT id FROM `{database}`.nothing)",
        "5": "gone = 1",
        "6": "1 = 1 ORDER BY id LIMIT 1",
        "7": "id INTO OUTFILE '/tmp/x'",
    }
    insert(root, database, *((n, "execute-snapshot", asked(database, sql)) for n, sql in (taken | given_up).items()))
    pipeline.drain()
    assert states(pipeline) == ["done"] * 4 + ["aborted"] * 4
    found = {int(re.sub(r"[^0-9]", "", key)): n for key, n in reads(pipeline, "a").items()}
    assert found == dict.fromkeys(range(40), 1) | {7: 2, 8: 2}
    check_exact(pipeline, root, "a")
    assert pipeline.drain() is None or states(pipeline) == ["done"] * 4 + ["aborted"] * 4


def test_names_and_ids_of_every_kind(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, f"ALTER TABLE `{database}`.signals MODIFY id LONGTEXT, DROP PRIMARY KEY",
            f"CREATE VIEW `{database}`.w AS SELECT * FROM `{database}`.a")  # fmt: skip
    pipeline.drain()
    wrong = {
        "long" * 25_000: asked(database),
        "own table": json.dumps({"data-collections": [f"{database}.signals"]}),
        "view": json.dumps({"data-collections": [f"{database}.w"]}),
        "system": json.dumps({"data-collections": ["mysql.user", "information_schema.tables", "performance_schema.*"]}),
        "slow": json.dumps({"data-collections": ["((.|.)+)+!"]}),
        "deep": "[" * 100_000,
        "deeper": '{"a":' * 100_000,
        "sql": json.dumps({"data-collections": [f"{database}.a`; DROP TABLE x; --"]}),
        "surrogate": asked(database, **{"surrogate-key": "id`; DROP TABLE x; --"}),
    }
    right = ["nul\0", "it's", 'a "quoted" one', "\U0001f600", "-- ", "*"]
    insert(root, database, *((id_, "execute-snapshot", data) for id_, data in wrong.items()),
           *((id_, "execute-snapshot", asked(database)) for id_ in right))  # fmt: skip
    pipeline.drain()
    assert {name[:20] for name in refused(pipeline)} == {name[:20] for name in wrong if name != "surrogate"}
    assert sorted(states(pipeline)) == ["aborted"] + ["done"] * len(right)
    assert {name for name, r in books(pipeline).requests.items() if r.verdict == "accepted"} == {*right, "surrogate"}
    assert set(reads(pipeline, "a").values()) == {len(right)}
    check_exact(pipeline, root, "a")


def test_one_id_over_two_channels_is_carried_out_once(pipeline: Pipeline, root: Any, database: str) -> None:
    insert(root, database, ("same", "execute-snapshot", asked(database)))
    send(pipeline.cfg, "execute-snapshot", {"data-collections": [f"{database}.a"]}, "same")
    pipeline.drain()
    assert states(pipeline) == ["done"] and set(reads(pipeline, "a").values()) == {1}
    assert any("was carried out before" in line for line in pipeline.lines)


@pytest.mark.parametrize(
    "shape",
    [
        "(data LONGTEXT, id VARCHAR(64), type VARCHAR(200))",
        "(id CHAR(64) CHARSET latin1 PRIMARY KEY, type VARCHAR(32) CHARSET ucs2, data JSON, at TIMESTAMP NULL) "
        "CHARSET latin1",
        "(a VARCHAR(64) COLLATE utf8mb4_bin, b TEXT, c MEDIUMTEXT, d INT NOT NULL DEFAULT 7) ENGINE=MyISAM",
    ],
    ids=["other order", "other types", "other engine"],
)
@pytest.mark.exhaustive(but="other types")
def test_a_signal_table_of_another_shape(pipeline: Pipeline, root: Any, database: str, shape: str) -> None:
    """The first three columns count, whatever they are called."""
    table = f"`{database}`.signals"
    execute(root, f"DROP TABLE {table}", f"CREATE TABLE {table} {shape}")
    names = [r[0] for r in rows(root, f"SHOW COLUMNS FROM {table}")][:3]
    with root.cursor() as cursor:
        sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES (%s, %s, %s)"
        cursor.execute(sql, ("s", "execute-snapshot", asked(database)))
    execute(root, f"UPDATE `{database}`.a SET v = 1 WHERE id < 10")
    pipeline.drain()
    assert states(pipeline) == ["done"]
    check_exact(pipeline, root, "a")


def test_a_trigger_of_the_signal_table(pipeline: Pipeline, root: Any, database: str) -> None:
    """One that writes elsewhere is no matter; one that takes the watermark away keeps scans, and not the stream."""
    execute(
        root,
        f"CREATE TABLE `{database}`.audit (n INT AUTO_INCREMENT PRIMARY KEY, id VARCHAR(64))",
        f"CREATE TRIGGER `{database}`.one AFTER INSERT ON `{database}`.signals FOR EACH ROW "
        f"INSERT INTO `{database}`.audit (id) VALUES (NEW.id)",
    )
    insert(root, database, ("s1", "execute-snapshot", asked(database)))
    pipeline.drain()
    assert states(pipeline) == ["done"]
    execute(
        root,
        f"CREATE TRIGGER `{database}`.two BEFORE INSERT ON `{database}`.signals FOR EACH ROW "
        "SET NEW.id = CONCAT(NEW.id, '!')",
    )
    insert(root, database, ("s2", "execute-snapshot", asked(database)))
    execute(root, f"UPDATE `{database}`.a SET v = 1 WHERE id < 10")
    pipeline.drain()
    assert states(pipeline) == ["done", "waiting"] or states(pipeline) == ["done", "running"]
    assert any("low watermark row did not appear" in line for line in pipeline.lines)
    same_as_table(pipeline, root, "a")
    send(pipeline.cfg, "stop-snapshot", {})
    pipeline.drain()
    assert states(pipeline) == ["done", "aborted"]


@pytest.mark.parametrize("strategy", ["insert_insert", "insert_delete"])
@pytest.mark.exhaustive(but="delete")
def test_a_snapshot_of_the_signal_table_itself(pipeline: Pipeline, root: Any, database: str, strategy: str) -> None:
    """Each window writes into the very table that it reads."""
    pipeline.properties |= {
        "table.include.list": f"{database}.a,{database}.signals",
        "incremental.snapshot.watermarking.strategy": strategy,
    }
    insert(root, database, *((f"{n:03}", "log", '{"message": "m"}') for n in range(40)))
    both = json.dumps({"data-collections": [f"{database}.signals", f"{database}.a"]})
    insert(root, database, ("s", "execute-snapshot", both))
    pipeline.drain()
    pipeline.drain()
    assert states(pipeline) == ["done", "done"]
    check_exact(pipeline, root, "a")
    check_exact(pipeline, root, "signals")
    # The row that opened the window may be among them.
    assert len(reads(pipeline, "signals")) in (41, 42)


@pytest.mark.req("INC-17")
def test_a_scan_that_can_never_succeed_is_given_up(pipeline: Pipeline, root: Any, database: str, stack: Any) -> None:
    user = pipeline.properties["database.user"]
    execute(root, f"CREATE USER `{database}` IDENTIFIED BY 'pw'",
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `{database}`",
            f"GRANT SELECT, INSERT ON `{database}`.* TO `{database}`")  # fmt: skip
    assert user
    try:
        pipeline.properties |= {"database.user": database, "database.password": "pw"}
        insert(root, database, ("s", "execute-snapshot", asked(database)))
        execute(root, f"REVOKE SELECT ON `{database}`.* FROM `{database}`",
                f"GRANT SELECT ON `{database}`.signals TO `{database}`",
                f"GRANT SELECT (v) ON `{database}`.a TO `{database}`",
                f"UPDATE `{database}`.a SET v = 1 WHERE id < 10")  # fmt: skip
        pipeline.drain()
        assert states(pipeline) == ["aborted"]
        [scan] = books(pipeline).scans.values()
        assert "denied" in scan.reason
        same_as_table(pipeline, root, "a")
    finally:
        execute(root, f"DROP USER `{database}`")


@pytest.mark.req("INC-17")
def test_a_condition_that_takes_for_ever_holds_up_no_stream(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the query before the client gives up; a signal stops the snapshot."""
    monkeypatch.setattr(rounds, "MAX_IDLE_WINDOWS", 1)
    pipeline.properties["database.query.timeout.ms"] = "3000"
    insert(root, database, ("s", "execute-snapshot", asked(database, "SLEEP(30) = 0")))
    execute(root, f"UPDATE `{database}`.a SET v = 1 WHERE id < 10")
    pipeline.drain()
    assert states(pipeline) == ["running"]
    assert any("continue in the next drain" in line for line in pipeline.lines)
    same_as_table(pipeline, root, "a")
    insert(root, database, ("stop", "stop-snapshot", "{}"))
    pipeline.drain()
    assert states(pipeline) == ["aborted"]


@pytest.mark.req("INC-09")
def test_tables_without_rows_are_passed_in_one_drain(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window that only finds that tables are empty is no idle one, however many of them there are."""
    monkeypatch.setattr(round_driver, "MAX_SCANS_PER_WINDOW", 1)
    monkeypatch.setattr(rounds, "MAX_IDLE_WINDOWS", 1)
    execute(root, f"DELETE FROM `{database}`.a")
    insert(root, database, *((f"s{n}", "execute-snapshot", asked(database)) for n in range(3)))
    pipeline.drain()
    assert states(pipeline) == ["done"] * 3


def test_airflow_gets_the_error_at_once(pipeline: Pipeline, database: str) -> None:
    with pytest.raises(ConfigError):
        send(pipeline.cfg, "execute-snapshot", {"data-collections": [f"{database}.a"], "x": "\x01" * 600_000})
