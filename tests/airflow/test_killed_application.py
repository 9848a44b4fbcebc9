"""A job on a Spark cluster that is ended in mid-batch: what it leaves running, and what it leaves lying."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from kit.spark_cluster import RunningCluster, command, wait_until
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.hooks.spark_python import driver_env
from airflow_provider_mysql_cdc.hooks.spark_submit import CdcSparkSubmitHook, application_path
from airflow_provider_mysql_cdc.hooks.spec_delivery import deliver_spec

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.exhaustive]


def holding(text: str, *folders: Path, since: float) -> list[Path]:
    """Return the files that hold a text, and that were written since a moment."""
    found = []
    for folder in folders:
        # Folders of other tests go meanwhile, which os.walk passes over.
        for path in (Path(at, name) for at, _, names in os.walk(folder) for name in names):
            with contextlib.suppress(OSError):
                if path.is_file() and path.stat().st_mtime >= since and text.encode() in path.read_bytes():
                    found.append(path)
    return found


def telling(text: str) -> list[str]:
    """Return the processes whose command line or environment holds a text; this one and its children apart."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and int(process.name) != os.getpid():
                shown = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                if text.encode() in shown:
                    found.append(process.name)
    return found


@pytest.fixture
def ends() -> Iterator[list[CdcSparkSubmitHook]]:
    """End the jobs of a test that fails before it has ended them."""
    hooks: list[CdcSparkSubmitHook] = []
    yield hooks
    for hook in hooks:
        hook.on_kill()


def test_on_kill_leaves_no_process_and_no_secret(
    properties: dict[str, str],
    root: Any,
    database: str,
    unique: str,
    spark_cluster: RunningCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: list[CdcSparkSubmitHook],
) -> None:
    password = f"M4rked-{os.urandom(8).hex()}"
    execute(
        root,
        f"CREATE USER '{unique}'@'%' IDENTIFIED BY '{password}'",
        f"GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{unique}'@'%'",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)",
        f"INSERT INTO `{database}`.t VALUES (1)",
    )
    pipeline = Pipeline({**properties, "database.user": unique, "database.password": password}, slots=1)
    assert pipeline.snapshot().complete
    execute(root, f"INSERT INTO `{database}`.t VALUES (2), (3)")
    spec, fired, began = pipeline.prepare("drain").spec, tmp_path / "fired", time.time()

    tmp = tmp_path / "tmp"
    for folder in (tmp, tmp_path / "events", tmp_path / "local"):
        folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp))
    fault = {"point": "writer.before_commit", "action": "sleep", "seconds": 600, "fired": str(fired)}
    conf = {
        **spark_cluster.conf,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.local.dir": str(tmp_path / "local"),
        "spark.executorEnv.MYSQL_CDC_FAULT": json.dumps(fault),
    }
    hook = CdcSparkSubmitHook(master=spark_cluster.master, conf=conf, driver_env=driver_env(os.environ))
    ends.append(hook)
    ended: list[BaseException] = []

    def run() -> None:
        try:
            hook.submit(application_path("drain_binlog.py"))
        except AirflowException as error:
            ended.append(error)

    places = (tmp_path, spark_cluster.folder, Path("/tmp"))
    carrier = deliver_spec(spec, hook.driver_target)
    given = carrier.__enter__()  # its task is killed and never leaves
    hook.use_delivery(given)
    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: fired.exists() or not thread.is_alive(), 120, "the fault never fired")
    assert fired.exists(), (ended, hook._last_submit_log_lines)
    driver = hook._submit_sp.pid
    assert telling(password) == []
    assert holding(password, *places, since=began) == []
    assert holding(unique, tmp_path / "local", since=began), "no broadcast was looked at"
    assert holding(spec.id, tmp, since=began), "no spec file was looked at"

    hook.on_kill()
    thread.join(30)
    assert ended and not command(driver)
    spark_cluster.wait_idle()
    wait_until(lambda: not spark_cluster.tasks(), 30, "a Python worker goes on")
    wait_until(lambda: not telling(str(fired)), 30, "a process of the application goes on")
    # Another run finds the stream free at once.
    run_lock.require_sole_run(pipeline.cfg.connection_settings(), pipeline.cfg.topic_prefix, "another/run/task/-1")
    other = Pipeline(pipeline.properties, store=pipeline.store, slots=1, owner="another/run/task/-1")
    assert (done := other.drain()) is not None and done.complete
    assert len(pipeline.records("t")) == 3
    assert telling(password) == []
    assert holding(password, *places, since=began) == []
    execute(root, f"DROP USER '{unique}'@'%'")
