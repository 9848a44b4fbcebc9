"""Sealed properties: their text tells nothing, their key is one text's alone."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, DamagedRecordError
from airflow_provider_mysql_cdc.cdc.job.coordinator import Coordinator, CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec, decrypt_properties, encrypt_properties
from airflow_provider_mysql_cdc.cdc.job.stage_runner import encrypted_properties, load_task_config
from airflow_provider_mysql_cdc.cdc.model.job_names import KEY_VARIABLE
from airflow_provider_mysql_cdc.spark.main import spec_key

pytestmark = pytest.mark.quick

MARK = "M4rked-s3cret"
BASE = {
    "topic.prefix": "p",
    "database.hostname": "h",
    "database.user": "u",
    "database.password": MARK,
    "kafka.bootstrap.servers": "k:1",
}


@pytest.mark.parametrize("properties", [{}, BASE, {"a": "ä" * 100_000, "n": 7}])
def test_a_text_is_opened_by_its_own_key_only(properties: dict[str, Any]) -> None:
    text, key = encrypt_properties(properties)
    assert decrypt_properties(text, key) == properties
    with pytest.raises(ConfigError, match="cannot be decrypted"):
        decrypt_properties(text, encrypt_properties(properties)[1])
    with pytest.raises(DamagedRecordError, match="key"):
        decrypt_properties(text, "")


def test_neither_half_contains_a_secret() -> None:
    first, second = encrypt_properties(BASE), encrypt_properties(BASE)
    assert first[0] != second[0] and first[1] != second[1]
    assert MARK not in "".join((*first, *second))


@pytest.mark.parametrize("at", [0, 20, -12])
def test_a_changed_text_is_found_out(at: int) -> None:
    text, key = encrypt_properties(BASE)
    wrong = list(text)
    wrong[at] = "A" if wrong[at] != "A" else "B"
    with pytest.raises((ConfigError, DamagedRecordError)):
        decrypt_properties("".join(wrong), key)
    for noise in ("", "?", "é"):
        with pytest.raises((ConfigError, DamagedRecordError)):
            decrypt_properties(noise, key)
        with pytest.raises((ConfigError, DamagedRecordError)):
            decrypt_properties(text, noise)


def test_an_encrypted_spec_file_contains_no_secret_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    spec = JobSpec("drain", BASE, {"epoch": 1}, "o", 3.0, "id")
    key = spec.write_encrypted(tmp_path / "spec")
    text = (tmp_path / "spec").read_text()
    assert MARK not in text and key not in text and json.loads(text)["properties"] == {}
    assert stat.S_IMODE((tmp_path / "spec").stat().st_mode) == 0o600
    assert JobSpec.read(tmp_path / "spec", lambda: key) == spec
    with pytest.raises(ConfigError, match="their key is missing"):
        JobSpec.read(tmp_path / "spec")


def test_a_driver_takes_its_key_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv(KEY_VARIABLE, "ab")
    assert spec_key() == "ab" and KEY_VARIABLE not in os.environ
    assert spec_key() is None


def test_a_task_gets_the_key_from_its_driver() -> None:
    cfg = ConnectorConfig.from_properties(BASE)
    sealed, hand_over = encrypted_properties(cfg)
    assert MARK not in sealed
    coordinator = Coordinator([hand_over])
    try:
        with CoordinatorClient(coordinator.address, coordinator.token, 0) as channel:
            assert load_task_config(channel, sealed).properties() == cfg.properties()
    finally:
        coordinator.close()
