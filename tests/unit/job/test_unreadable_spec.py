"""A job spec that is not there, or cannot be opened: the error says so, and where it was looked for."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError, StateError
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec


def test_a_missing_spec_is_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateError) as caught:
        JobSpec.read(Path("spec.json"))
    error = caught.value
    assert not isinstance(error, DamagedRecordError) and error.what == "the job spec is missing"
    assert error.where == f"{tmp_path}/spec.json on host {socket.gethostname()}"
    assert "deleted" in error.why and error.remedy.startswith("run the task again") and error.can_retry


def test_a_spec_that_cannot_be_opened_is_no_damaged_record(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"cannot be read.*Is a directory") as caught:
        JobSpec.read(tmp_path)
    assert not isinstance(caught.value, DamagedRecordError)
