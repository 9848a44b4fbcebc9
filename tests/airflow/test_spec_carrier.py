"""The way of a job's spec to its driver: what lies where, and what a killed task leaves."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.job_names import KEY_VARIABLE
from airflow_provider_mysql_cdc.hooks import spec_delivery as spec_carrier
from airflow_provider_mysql_cdc.hooks.spec_delivery import (
    FOLDER_PREFIX,
    TOKEN_FILE_VARIABLE,
    YARN_TAGS,
    DriverTarget,
    deliver_spec,
    private_folder,
)

MARK = "M4rked-s3cret"
SPEC = JobSpec("drain", {"database.password": MARK}, {}, "dag/run/task/-1", id="0123456789abcdef")
HELD = """
import subprocess, sys, time
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.hooks.spec_delivery import DriverTarget, deliver_spec
spec = JobSpec("drain", {"database.password": "M4rked-s3cret"}, {}, "o", id="0123456789abcdef")
with deliver_spec(spec, DriverTarget("local[1]", "client")) as given:
    driver = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=given.fds)
    print(given.argument, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def texts(path: Path) -> str:
    """Return all that lies in the files of a folder."""
    return "".join(file.read_bytes().decode("latin1") for file in path.rglob("*") if file.is_file())


def test_for_a_local_driver_the_file_is_encrypted_and_the_key_is_only_in_its_environment(tmp_path: Path) -> None:
    with deliver_spec(SPEC, DriverTarget("spark://one:7077", "client")) as given:
        key = given.env[KEY_VARIABLE]
        assert JobSpec.read(Path(given.argument), lambda: key) == SPEC
        assert (given.files, given.conf, given.job_id, len(given.fds)) == ((), {}, SPEC.id, 1)
        assert MARK not in texts(tmp_path) and key not in texts(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_on_yarn_the_key_is_a_credential_that_lies_in_no_folder(tmp_path: Path) -> None:
    with deliver_spec(SPEC, DriverTarget("yarn", "cluster", token_files="/other/tokens")) as given:
        (file,) = given.files
        assert given.argument == Path(file).name == "job-spec.json"
        assert given.conf == {YARN_TAGS: "mysql-cdc-0123456789abcdef"} and KEY_VARIABLE not in given.env
        other, _, mine = given.env[TOKEN_FILE_VARIABLE].partition(",")
        assert other == "/other/tokens"
        read = [sys.executable, "-c", "import sys; print(open(sys.argv[1], 'rb').read().hex())", mine]
        found = bytes.fromhex(subprocess.check_output(read, pass_fds=given.fds, text=True))
        key = found[-44:].decode()
        assert JobSpec.read(Path(file), lambda: key) == SPEC
        assert MARK not in texts(tmp_path) and key not in texts(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_on_yarn_a_login_of_spark_s_own_is_refused_rather_than_leaving_copies() -> None:
    with (
        pytest.raises(ConfigError, match="keep a Kerberos ticket"),
        deliver_spec(SPEC, DriverTarget("yarn", "cluster", own_login=True)),
    ):
        raise AssertionError


def test_a_folder_that_is_being_made_is_not_taken_for_an_abandoned_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many tasks begin at once on a worker, and each sweeps."""
    lock, others = fcntl.flock, []

    def late(fd: int, how: int) -> None:
        if how == fcntl.LOCK_EX and not others:
            others.append(1)
            spec_carrier.remove_abandoned_folders()  # of another task, before this one holds its folder
        lock(fd, how)

    monkeypatch.setattr(spec_carrier.fcntl, "flock", late)
    with private_folder() as (mine, _):
        assert others and mine.is_dir() and mine.name.startswith(FOLDER_PREFIX)
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_killed_task_are_encrypted_and_removed_by_the_next_one(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HELD], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with private_folder():
            stays = left.exists()
        os.kill(process.pid, signal.SIGKILL)
        assert stays, "the folder of a task that lives is nobody else's to remove"
        assert process.wait() and MARK not in texts(tmp_path)
        with private_folder():
            assert left.exists(), "the driver that its task has started may not have read it yet"
        assert process.stdin is not None
        process.stdin.close()
        assert process.stdout.read() == "", "the driver has ended"
    with private_folder() as (mine, _):
        assert [path for path in tmp_path.glob(f"{FOLDER_PREFIX}*")] == [mine]
    assert list(tmp_path.iterdir()) == []
