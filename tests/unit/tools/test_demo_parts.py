"""The demo's other parts, as far as they need no server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from demolib import family
from demolib.airflow_run import Airflow
from demolib.main import main
from demolib.verify import Result
from kit.cases import case
from topiclib.checks import TableVerdict

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print("up", flush=True)
time.sleep(60)
"""


def test_a_family_is_ended_with_those_who_left_its_session(tmp_path: Path) -> None:
    tag = f"TMPDIR={tmp_path}"
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", STUBBORN]
    process = subprocess.Popen(command, env=env, start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    root = family.started(process.pid)
    assert root is not None
    deadline = time.monotonic() + 10
    while len(family.members(root, tag)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    everyone = family.members(root, tag)
    assert len(everyone) == 2 and root in everyone
    assert family.members(None, tag) == everyone
    assert family.end(root, tag, 0.3, lambda _: None) == 2
    assert process.wait(10) == -9
    process.stdout.close()
    assert not family.members(None, tag)
    assert family.end(root, tag, 0.1, lambda _: None) == 0


def test_airflow_gets_a_home_of_its_own_and_no_secret_of_the_servers(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", "/elsewhere")
    monkeypatch.setenv("MYSQL_CDC_MYSQL_PASSWORD", "hidden")
    airflow = Airflow(tmp_path / "home", lambda _: None)
    airflow.port = 4711
    env = airflow._environment([1, 2], {"spark_cdc": "text"}, "/java")
    assert env["AIRFLOW__CORE__DAGS_FOLDER"].endswith("/dags") and env["AIRFLOW_HOME"] == str(tmp_path / "home")
    assert env["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:4711/execution/"
    assert env["AIRFLOW__API__HOST"] == "127.0.0.1" and env["AIRFLOW_CONN_SPARK_CDC"] == "text"
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert "MYSQL_CDC_MYSQL_PASSWORD" not in env and env["JAVA_HOME"] == "/java"


def test_nothing_verified_is_not_a_success() -> None:
    assert not Result((), (), 0.0).ok
    assert not Result((TableVerdict("t"),), ("the ALTER is missing",), 0.0).ok


def test_wrong_options_are_refused(capsys: Any) -> None:
    for wrong in [["--drains", "1"], ["--rate", "0"], ["--scale", "-1"], ["--unknown"]]:
        with case(wrong):
            with pytest.raises(SystemExit):
                main(wrong)
            assert "error:" in capsys.readouterr().err
