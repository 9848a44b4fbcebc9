"""One Airflow home and one migrated metadata database for all tests of this folder."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from airflow_home import migrate, settings

# Airflow reads its settings when it is imported, and the test modules import it, so this cannot wait for a fixture.
HOME = Path(tempfile.mkdtemp(prefix=f"mysql-cdc-airflow-{os.environ['MYSQL_CDC_SUITE']}-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ.update(settings(HOME))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the metadata database."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.airflow)


@pytest.fixture(scope="session")
def metadata_db() -> Path:
    """Migrate the metadata database once."""
    migrate()
    return HOME
