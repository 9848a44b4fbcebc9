"""DDL that waits for the views of a verification does not hold it up, and writers no longer than the views last."""

from __future__ import annotations

import threading
import time
from typing import Any

import pymysql
import pytest
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.verify.views import view_batch


def test_ddl_between_the_views_and_the_chunks(
    pipeline: Pipeline, stack: Any, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)")
    execute(root, f"INSERT INTO `{database}`.t VALUES " + ",".join(f"({i}, {i})" for i in range(100)))
    pipeline.properties["snapshot.chunk.rows"] = "10"
    pipeline.snapshot()
    # The server keeps this estimate; without one it has none while a statement waits for the table.
    execute(root, f"ANALYZE TABLE `{database}`.t")
    assert rows(root, f"SELECT table_rows FROM information_schema.tables WHERE table_schema = '{database}'") == [(100,)]
    split_table, waiting = view_batch.split_table, list[threading.Thread]()

    def alter() -> None:
        with pymysql.connect(
            host=stack.mysql_host, port=stack.mysql_port, user=stack.root_user, password=stack.root_password
        ) as conn:
            execute(conn, "SET lock_wait_timeout = 60", f"ALTER TABLE `{database}`.t ADD w INT")

    def split_behind_an_alter(*args: Any, **kwargs: Any) -> Any:
        if not waiting:
            waiting.append(threading.Thread(target=alter))
            waiting[0].start()
            locks = "SELECT 1 FROM performance_schema.metadata_locks WHERE LOCK_STATUS = 'PENDING'"
            while not rows(root, f"{locks} AND OBJECT_SCHEMA = '{database}'"):
                time.sleep(0.05)
        return split_table(*args, **kwargs)

    monkeypatch.setattr(view_batch, "split_table", split_behind_an_alter)
    begun = time.monotonic()
    result = pipeline.verify()
    assert result.verdict == "equal" and result.tables[0].rows == 100 and time.monotonic() - begun < 30, result
    waiting[0].join(30)
    assert not waiting[0].is_alive() and any("in one piece" in line for line in pipeline.lines), pipeline.lines
    monkeypatch.undo()
    assert pipeline.verify().verdict == "equal"
