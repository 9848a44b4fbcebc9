"""Airflow's own view of the provider when it is installed: form, configuration section, test button."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from airflow_home import clean_environment

from airflow_provider_mysql_cdc import __version__

CODE = """
import json
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
from airflow.providers_manager import ProvidersManager
from airflow.sdk import conf

(hook,) = (h for h in HookMetaService.hook_meta_data() if h.connection_type == "mysql_cdc")
manager = ProvidersManager()
manager.initialize_providers_configuration()
print(json.dumps({
    "hook": hook.model_dump(mode="json"),
    "testable": manager.hooks["mysql_cdc"].connection_testable,
    "drain_schedule": conf.get("mysql_cdc", "drain_schedule"),
    "providers": sorted(name for name in manager.providers if "cdc" in name),
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Ask Airflow in a new process in which the package counts as installed."""
    folder = tmp_path_factory.mktemp("installed")
    info = folder / "airflow_provider_mysql_cdc-0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: airflow-provider-mysql-cdc\nVersion: {__version__}\n"
    )
    info.joinpath("entry_points.txt").write_text(
        "[apache_airflow_provider]\nprovider_info=airflow_provider_mysql_cdc.get_provider_info:get_provider_info\n"
    )
    env = clean_environment(folder)
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(folder)])
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    assert not [line for line in done.stderr.splitlines() if "mysql_cdc" in line.lower()], done.stderr
    return found


def test_the_package_is_a_provider(seen: dict[str, Any]) -> None:
    assert seen["providers"] == ["airflow-provider-mysql-cdc"]


def test_the_connection_form_is_grouped_and_marks_what_is_required(seen: dict[str, Any]) -> None:
    fields = seen["hook"]["extra_fields"]
    name, first = next(iter(fields.items()))
    assert (name, first["schema"]["title"], first["schema"]["section"]) == (
        "topic.prefix",
        "Topic prefix (required)",
        "Stream",
    )
    sections = [field["schema"]["section"] for field in fields.values()]
    assert list(dict.fromkeys(sections)) == ["Stream", "Kafka", "Captured tables", "Encryption to MySQL"]
    assert sections == sorted(sections, key=list(dict.fromkeys(sections)).index), "a group is in one piece"
    for field in fields.values():
        assert field["value"] is None and "null" in field["schema"]["type"], "no star"
        assert field["description"] is None and field["schema"]["description_md"], "shown as Markdown"
    assert fields["database.ssl.key.password"]["schema"]["format"] == "password"
    assert fields["kafka.sasl.password"]["schema"]["format"] == "password"
    shown = fields["snapshot.mode"]["schema"]
    assert shown["values_display"]["null"] == "(empty: initial)" and "initial" in shown["enum"]


def test_the_standard_fields_are_labelled_for_mysql(seen: dict[str, Any]) -> None:
    standard = seen["hook"]["standard_fields"]
    assert standard["host"]["title"] == "MySQL host (required)"
    assert standard["url_schema"]["title"] == "Database of an offset store"


def test_the_connection_has_a_test_button(seen: dict[str, Any]) -> None:
    assert seen["testable"] is True


def test_the_options_have_their_documented_defaults(seen: dict[str, Any]) -> None:
    assert seen["drain_schedule"] == "*/5 * * * *"
