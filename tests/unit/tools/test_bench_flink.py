"""Flink CDC as one side of scripts/bench: its job, its process, and the server that it needs."""

from __future__ import annotations

import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchlib import flink_sides, flink_worker, servers
from benchlib.flink_sides import FlinkDrain, drain_statements
from benchlib.flink_worker import Flink
from benchlib.source import MySqlSource
from stacklib.errors import StackError
from stacklib.java import Java

SOURCE = MySqlSource("127.0.0.1", 3306, "root", "it's")

# What the SQL client does here: it serves the mini cluster's REST interface on the port that its statements name, says
# that a job has ended when it is told to stop it, and goes on.
CLIENT = r"""
import http.server, json, re, sys
sql = open(sys.argv[-1]).read()
if "FAIL" in sql:
    print("\033[31;1m[ERROR] Could not execute SQL statement. Reason:\njava.net.BindException: no\033[0m", flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())
    def do_GET(self):
        self.answer({"jobs": [{"id": "a1"}]})
    def do_POST(self):
        given = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/jobs/a1/stop" and json.loads(given) == {"drain": False}:
            print("[INFO] Complete execution of the SQL update statement.", flush=True)
        self.answer({})
port = int(re.search(r"SET 'rest.port' = '(\d+)'", sql)[1])
server = http.server.HTTPServer(("127.0.0.1", port), Handler)
print("serves", flush=True)
server.serve_forever()
"""


def until(done: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not done():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    client, program = tmp_path / "client.py", tmp_path / "java" / "bin" / "java"
    client.write_text(CLIENT)
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {client} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(flink_worker, "archives", lambda _: tmp_path)
    monkeypatch.setattr(flink_sides, "archives", lambda _: tmp_path)
    return Java(tmp_path / "java", 17, "test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (made := tmp_path / "run").mkdir()
    return made


def test_a_job_begins_at_its_place_and_leaves_the_rest_to_flink() -> None:
    source, sink, insert = drain_statements(
        SOURCE, "127.0.0.1:9092", "a.bench.orders", ("binlog.000003", 157)
    ).splitlines()
    assert "'scan.startup.specific-offset.file' = 'binlog.000003'" in source
    assert "'scan.startup.specific-offset.pos' = '157'" in source and "'password' = 'it''s'" in source
    assert sink.endswith(
        "WITH ('connector' = 'kafka', 'topic' = 'a.bench.orders', 'properties.bootstrap.servers' = '127.0.0.1:9092', "
        "'format' = 'debezium-json');"
    )
    assert insert == "INSERT INTO sink SELECT * FROM source;"


def test_a_job_is_stopped_and_then_its_process(java: Java, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A proxy of the environment does not reach this machine's loopback.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with Flink(java, folder, "") as flink:
        until(lambda: "serves" in flink.log.read_text())
        assert (flink.trouble(), flink.stopped, flink.ended) == (None, False, False)
        flink.stop_job()
        until(lambda: flink.stopped)
        assert not flink.ended
        flink.ask_to_end()
        until(lambda: flink.ended)
        assert flink.trouble() == "Flink ended with code -15"
    assert not (folder / "process.json").exists()


def test_settings_and_statements_are_for_its_owner_alone(java: Java, folder: Path) -> None:
    Flink(java, folder, "secret")
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in ("config.yaml", "job.sql")} == {0o600}
    assert f"io.tmp.dirs: {folder}/tmp\n" in (folder / "config.yaml").read_text()


def test_what_fails_is_reported_and_nothing_is_left_behind(java: Java, folder: Path) -> None:
    with pytest.raises(StackError, match="ending Flink's job"), Flink(java, folder, "FAIL") as flink:
        until(lambda: flink.trouble() is not None)
        assert flink.trouble() == "Could not execute SQL statement. Reason: java.net.BindException: no"
        flink._port = 1
        flink.stop_job()
    assert flink.ended
    with pytest.raises(SystemExit), Flink(java, folder / "..", "") as flink:
        raise SystemExit(143)
    assert flink.ended


@pytest.fixture
def drain(java: Java, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FlinkDrain, list[int]]]:
    """A drain whose topic has as many records as the list says, one number a look."""
    counts: list[int] = []
    workload = SimpleNamespace(name="flink-narrow", rows=100)
    ground = SimpleNamespace(source=SOURCE, kafka="127.0.0.1:1", java=java)
    side = SimpleNamespace(name="flink")
    entry: Any = SimpleNamespace(ground=ground, workload=workload, side=side, folder=folder, prefix=lambda n: f"p{n}")
    admin = SimpleNamespace(create_topics=lambda _: {})
    monkeypatch.setattr(flink_sides, "AdminClient", lambda _: admin)
    monkeypatch.setattr(flink_sides, "delete_topics_and_wait", lambda *_: counts.append(-1))
    monkeypatch.setattr(flink_sides, "_POLL_S", 0.05)
    monkeypatch.setattr(flink_sides, "RUN_TIMEOUT_S", 20.0)
    monkeypatch.setattr(flink_sides, "_records", lambda *_: counts.pop(0) if counts[1:] else counts[0])
    yield FlinkDrain(entry), counts


def test_a_drain_ends_in_good_order_when_all_records_are_there(
    drain: tuple[FlinkDrain, list[int]], folder: Path
) -> None:
    found, counts = drain
    counts += [0] * 20 + [40, 100]
    run = found.run(1)
    assert (run.workload, run.side, run.records) == ("flink-narrow", "flink", 100)
    assert "Complete execution" in (folder / "1" / "flink.log").read_text()
    assert run.used.cpu_s > 0 and counts == [100, -1]


def test_a_drain_with_more_records_than_rows_counts_for_nothing(drain: tuple[FlinkDrain, list[int]]) -> None:
    found, counts = drain
    counts += [0] * 20 + [130]
    with pytest.raises(RuntimeError, match="100 rows were written, and 130 records came"):
        found.run(0)


def test_a_job_that_fails_ends_the_drain(drain: tuple[FlinkDrain, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    found, counts = drain
    counts.append(0)
    monkeypatch.setattr(flink_sides, "drain_statements", lambda *_: "FAIL")
    with pytest.raises(StackError, match=r"measuring Flink CDC 3\.5\.0: Could not execute SQL statement"):
        found.run(0)


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to servers, in their order."""
    found: list[str] = []

    def start(program: str, folder: Path, port: int, password: str) -> None:
        found.append(f"start {program}")
        if "broken" in folder.name:
            raise StackError("starting mysql", "no answer", "see the log")

    monkeypatch.setattr(servers.mysql, "find_program", lambda version: version)
    monkeypatch.setattr(servers.mysql, "start", start)
    monkeypatch.setattr(servers.processes, "stop", lambda subject, *_, **__: found.append(f"stop {subject}"))
    monkeypatch.setattr(MySqlSource, "run", lambda self, *_: found.append(f"hurry {self.user}"))
    return found


def test_another_server_runs_as_long_as_it_is_needed(acts: list[str], tmp_path: Path) -> None:
    ground: Any = servers.BenchEnvironment(SOURCE, "kafka", "registry", Java(Path("/"), 17, "test"))
    with servers.on_server(ground, None, tmp_path) as there:
        assert there is ground
    assert acts == []
    with servers.on_server(ground, "8.0.15", tmp_path) as there:
        assert acts == ["start 8.0.15", "hurry root"]
        assert there.kafka == ground.kafka and there.source.port != SOURCE.port
    assert acts[2:] == ["stop mysql"]
    with pytest.raises(SystemExit), servers.on_server(ground, "8.0.15", tmp_path):
        raise SystemExit(143)
    assert acts[3:] == ["start 8.0.15", "hurry root", "stop mysql"]
    with pytest.raises(StackError), servers.on_server(ground, "8.0.15", tmp_path / "broken"):
        pass
    assert acts[6:] == ["start 8.0.15", "stop mysql"]


def test_what_flink_is_fetched_as_is_fixed() -> None:
    """One release of Flink for all its modules."""
    modules = [version for group, _, version in flink_worker.COORDINATES if group == "org.apache.flink"]
    assert modules.count(flink_worker.FLINK_VERSION) == len(modules) - 2 and flink_worker.VERSION in modules
    assert all(version[0].isdigit() for _, _, version in flink_worker.COORDINATES)
