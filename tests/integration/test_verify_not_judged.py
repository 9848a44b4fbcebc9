"""What could not be judged is not equal: it has a verdict and an exit code of its own, and stays until it is judged."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from kit.incremental_rig import FLAT, ask_for, books
from kit.repairs import LOGGED, UNLOGGED, verdict
from kit.signals import send
from kit.sql import execute
from kit.verify_reads import before_reading
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import state_changes
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.operate.settle import NOT_JUDGED_EXIT, exit_code
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind as Kind
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    RepairMode,
    TableVerdict,
    VerdictKind,
    VerifyRequest,
)
from airflow_provider_mysql_cdc.commands import verify as verify_command
from airflow_provider_mysql_cdc.commands.program import command_line


def delete_records(pipeline: Pipeline, root: Any, db: str) -> None:
    ends = [TopicPartition(pipeline.table_topic("a"), 0, -1), TopicPartition(pipeline.table_topic("plain"), 0, -1)]
    for future in make_admin(pipeline.cfg.kafka_settings()).delete_records(ends).values():
        future.result()


def pause_a_snapshot(pipeline: Pipeline, root: Any, db: str) -> None:
    execute(root, UNLOGGED, f"INSERT INTO `{db}`.a VALUES (100, 1)", LOGGED)
    ask_for(pipeline, ["a"])
    with JobLedger(pipeline.cfg) as job:
        job.read()
        job.put_all(state_changes(books(pipeline), replace(books(pipeline), paused=True)))


def hide_a_table(pipeline: Pipeline, root: Any, db: str) -> None:
    create = f"CREATE TABLE `{db}`.hidden (id INT PRIMARY KEY)"
    execute(root, UNLOGGED, create, f"INSERT INTO `{db}`.hidden VALUES (1)", LOGGED)


CASES: dict[str, tuple[Callable[[Pipeline, Any, str], None], str, str]] = {
    "all records are deleted": (delete_records, "a", "missing rows are not judged (5 seen): the first"),
    "those of a table without a key": (delete_records, "plain", "missing rows are not judged (2 seen): the first"),
    "an ad-hoc snapshot is paused": (pause_a_snapshot, "a", "not read all rows of the table yet and is paused"),
    "the stream never read it": (hide_a_table, "hidden", "the stream has never read it"),
}


def command(pipeline: Pipeline, folder: Path) -> tuple[int, str]:
    """Run ``mysql-cdc verify``; return its exit code and what it prints."""
    path = folder / "stream.json"
    path.write_text(json.dumps(pipeline.properties))
    out = io.StringIO()
    return verify_command.run(command_line().parse_args(["verify", "--properties", str(path)]), out), out.getvalue()


def fill(root: Any, db: str) -> None:
    for table in ("a", "b", "empty"):
        execute(root, f"CREATE TABLE `{db}`.{table} (id INT PRIMARY KEY, v INT)")
    execute(root, f"CREATE TABLE `{db}`.plain (v INT)", f"INSERT INTO `{db}`.plain VALUES (1), (1)")
    for table in ("a", "b"):
        execute(root, f"INSERT INTO `{db}`.{table} VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)")


@pytest.mark.days("even")
def test_what_was_not_compared_is_not_equal(
    properties: dict[str, str], root: Any, database: str, tmp_path: Path
) -> None:
    pipeline = Pipeline(properties | FLAT)
    fill(root, database)
    pipeline.snapshot()
    assert pipeline.verify().verdict == "equal" and command(pipeline, tmp_path)[0] == 0
    for case, (break_it, table, reason) in CASES.items():
        break_it(pipeline, root, database)
        result = pipeline.verify()
        found = verdict(result, table)
        assert (found.verdict, found.equal, found.findings) == (VerdictKind.NOT_JUDGED, False, {}), (case, found)
        assert any(reason in text for text in found.unknown), (case, found.unknown)
        assert result.verdict is VerdictKind.NOT_JUDGED and exit_code(result) == NOT_JUDGED_EXIT, case
        assert verdict(result, "empty").verdict == "equal" and verdict(result, "b").verdict == "equal", case
        code, text = command(pipeline, tmp_path)
        assert code == 3 and "could not be judged in full" in text.splitlines()[0], (case, text)
    execute(root, UNLOGGED, f"DELETE FROM `{database}`.b WHERE id = 1", LOGGED)
    assert exit_code(pipeline.verify()) == command(pipeline, tmp_path)[0] == 1, "a difference says more"
    # What the report advises works.
    pipeline.properties["snapshot.mode"] = "recovery"
    pipeline.snapshot()
    pipeline.properties["snapshot.mode"] = "initial"
    send(pipeline.cfg, "resume-snapshot")
    ask_for(pipeline, ["hidden"], "s2")
    pipeline.drain()
    found = pipeline.verify()
    assert verdict(found, "hidden").verdict == "equal" and verdict(found, "a").verdict == "equal", found


@pytest.mark.days("odd")
def test_a_verdict_stays_until_its_table_is_judged_again(
    properties: dict[str, str], root: Any, database: str, tmp_path: Path
) -> None:
    pipeline = Pipeline(properties | FLAT)
    fill(root, database)
    pipeline.snapshot()

    def shown() -> tuple[int, str, str]:
        code, text = command(pipeline, tmp_path)
        return code, text.splitlines()[0], text

    def verified(table: str, **more: Any) -> TableVerdict:
        return verdict(pipeline.verify(VerifyRequest((f"{database}.{table}",), **more)), table)

    prefix = pipeline.cfg.topic_prefix
    execute(root, UNLOGGED, f"UPDATE `{database}`.a SET v = 9 WHERE id = 1", LOGGED)
    assert not pipeline.verify().equal
    assert verified("b").verdict == "equal"
    code, first, text = shown()
    assert (code, first) == (1, f"1 of 4 tables of {prefix} differ from their topics.")
    assert "found by an earlier run" in text and "of 3 tables the verdict of an earlier run counts" in text
    # A sample that does not have the row's key does not judge it.
    percent = next(p for p in (1, 2, 5, 10, 20, 40) if verified("a", sample_percent=p).verdict == "equal")
    assert shown()[0] == 1, percent
    assert verified("a", repair=RepairMode.YES).repaired == {Kind.DIFFERING: 1}
    repaired = f"1 of 4 tables of {prefix} differed from their topics; all differences are repaired."
    assert shown()[:2] == (0, repaired)
    assert verified("a").verdict == "equal"
    assert shown()[:2] == (
        0,
        f"Every topic of {prefix} that was compared equals its table: 4 tables compared.",
    )
    execute(root, f"DROP TABLE `{database}`.b")
    assert pipeline.verify().verdict == "equal"
    assert shown()[1] == f"Every topic of {prefix} equals its table: 3 tables compared."


def test_a_topic_whose_first_records_are_deleted_while_it_is_read_is_not_compared(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table, key in (("a", "PRIMARY KEY"), ("plain", ""), ("other", "PRIMARY KEY")):
        name = f"`{database}`.{table}"
        execute(root, f"CREATE TABLE {name} (id INT {key})", f"INSERT INTO {name} VALUES (1), (2)")
    pipeline.snapshot()
    deleted, lock = list[bool](), threading.Lock()

    def delete_once(topic: str) -> None:
        with lock:  # no task reads meanwhile
            if not deleted:
                deleted.append(True)
                delete_records(pipeline, root, database)

    before_reading(monkeypatch, delete_once)
    verdicts = {v.table.partition(".")[2]: v for v in pipeline.verify().tables}
    assert deleted and verdicts["other"].verdict is VerdictKind.EQUAL
    for table in ("a", "plain"):
        assert verdicts[table].verdict is VerdictKind.NOT_JUDGED
        assert "deleted while they were read" in verdicts[table].unknown[0]
