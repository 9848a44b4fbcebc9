"""The local stack itself, with real servers in folders of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from stacklib import StackInfo, ensure_stack, kafka, mysql, processes, settings, stop_stack

SCRIPT = str(settings.REPOSITORY / "scripts" / "stack")


@pytest.fixture(autouse=True)
def own_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MYSQL_CDC_MYSQL_HOST", "MYSQL_CDC_KAFKA", "MYSQL_CDC_STACK_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackInfo]:
    """A stack with MySQL 8.0.15, beside the one of the session."""
    folder = tmp_path_factory.mktemp("stack-8.0.15")
    given = {name: os.environ.pop(name, None) for name in ("MYSQL_CDC_MYSQL_HOST", "MYSQL_CDC_KAFKA")}
    try:
        yield ensure_stack(folder, "8.0.15")
    finally:
        stop_stack(folder, wipe=True)
        os.environ.update({name: value for name, value in given.items() if value is not None})


def query(info: StackInfo, sql: str, *, user: str, password: str) -> Any:
    conn = pymysql.connect(host=info.mysql_host, port=info.mysql_port, user=user, password=password, ssl_disabled=True)
    try:
        with conn.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()
    finally:
        conn.close()


def as_root(info: StackInfo, sql: str) -> Any:
    return query(info, sql, user=info.root_user, password=info.root_password)


def check_servers(info: StackInfo, version: str, unique: str) -> None:
    """Check settings and accounts of MySQL, and one transaction of Kafka."""
    sql = (
        "SELECT @@version, @@binlog_format, @@binlog_row_image, @@binlog_row_metadata, @@gtid_mode, "
        "@@enforce_gtid_consistency, @@log_bin"
    )
    (row,) = as_root(info, sql)
    assert row[0].startswith(version)
    assert row[1:] == ("ROW", "FULL", "MINIMAL", "ON", "ON", 1)
    (grant,) = query(info, "SHOW GRANTS", user=info.cdc_user, password=info.cdc_password)
    assert grant[0] == (
        "GRANT SELECT, RELOAD, SHOW DATABASES, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `cdc`@`%`"
    )
    (plugin,) = as_root(info, "SELECT plugin FROM mysql.user WHERE user = 'cdc'")
    assert plugin == ("caching_sha2_password",)
    producer = Producer({"bootstrap.servers": info.kafka, "transactional.id": unique})
    producer.init_transactions(30)
    metadata = AdminClient({"bootstrap.servers": info.kafka}).list_topics(timeout=10)
    assert unique not in metadata.topics


def test_the_default_stack_has_the_settings_that_capture_needs(stack: StackInfo, unique: str) -> None:
    check_servers(stack, "9.7.", unique)


@pytest.mark.exhaustive
def test_mysql_8_0_15_can_be_chosen_and_runs_next_to_the_other(old: StackInfo, stack: StackInfo, unique: str) -> None:
    check_servers(old, "8.0.15", unique)
    assert old.mysql_port != stack.mysql_port and old.kafka != stack.kafka


def test_the_accounts_leave_no_trace_in_the_binlog(old: StackInfo) -> None:
    assert as_root(old, "SELECT @@global.gtid_executed") == (("",),)


def test_a_second_start_finds_everything_running(old: StackInfo) -> None:
    records = [kafka.record(Path(old.dir) / "kafka"), mysql.record(Path(old.dir) / "mysql")]
    before = [record.read_text() for record in records]
    assert ensure_stack(old.dir) == old
    assert [record.read_text() for record in records] == before, "a server was started"


@pytest.mark.exhaustive
def test_a_restart_keeps_data_ports_and_password(old: StackInfo) -> None:
    as_root(old, "CREATE DATABASE kept")
    stop_stack(old.dir)
    assert not mysql.running(Path(old.dir) / "mysql") and not kafka.running(Path(old.dir) / "kafka")
    begun = time.monotonic()
    assert ensure_stack(old.dir) == old
    assert time.monotonic() - begun < 30
    assert as_root(old, "SHOW DATABASES LIKE 'kept'") == (("kept",),)


@pytest.mark.exhaustive
def test_a_killed_server_is_started_again(old: StackInfo) -> None:
    identity = processes.load(mysql.record(Path(old.dir) / "mysql"))
    assert identity is not None
    os.kill(identity.pid, signal.SIGKILL)
    while processes.alive(identity):
        time.sleep(0.05)
    done = subprocess.run([SCRIPT, "status", "--dir", old.dir], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and re.search("^mysql +down .*^kafka +up ", done.stdout, re.M | re.S)
    assert ensure_stack(old.dir) == old
    assert as_root(old, "SELECT 1") == ((1,),)


@pytest.mark.parametrize("moment", ["starting", "ready"])
@pytest.mark.exhaustive
def test_an_interrupted_start_leaves_nothing_running(tmp_path: Path, moment: str) -> None:
    # A suite that runs in the background of a script inherits SIGINT as ignored; here it must arrive.
    process = subprocess.Popen(
        [SCRIPT, "up", "--dir", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert process.stderr is not None
    for line in process.stderr:
        if f"mysql  {moment}" in line or f"kafka  {moment}" in line:
            process.send_signal(signal.SIGINT)
            break
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not mysql.running(tmp_path / "mysql") and not kafka.running(tmp_path / "kafka")
