"""An Airflow home and a migrated metadata database for each worker that runs tests of this folder."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from airflow_home import migrate, settings

# Airflow reads its settings when it is imported, and the test modules import it, so this cannot wait for a fixture.
HOME = Path(tempfile.mkdtemp(prefix=f"mysql-cdc-airflow-{os.environ['MYSQL_CDC_SUITE']}-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ.update(settings(HOME))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the metadata database, and what needs neither that nor any server."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.airflow)
            names = item.fixturenames  # type: ignore[attr-defined]
            servers = {"metadata_db", "stack", "spark_cluster", "connect_server"}.intersection(names)
            if not servers and item.get_closest_marker("spark") is None:
                item.add_marker(pytest.mark.quick)


@pytest.fixture(scope="session")
def metadata_db() -> Path:
    """Migrate this worker's metadata database (1.6 CPU seconds, measured)."""
    migrate()
    return HOME


@pytest.fixture(scope="module")
def api(metadata_db: Path) -> Iterator[Any]:
    """Serve Airflow's API in this process, with the page; return the client."""
    from fastapi.testclient import TestClient
    from page_site import create_api

    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"  # as airflow.api_fastapi.main does
    try:
        with TestClient(create_api()) as client:
            yield client
    finally:
        del os.environ["_AIRFLOW_PROCESS_CONTEXT"]


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Define connections, and stand in for spark-submit and for the pipeline; return both stand-ins."""
    from fakes import connections, install

    connections(monkeypatch, kafka_conn_id="kafka_cdc")
    return install(monkeypatch, tmp_path)
