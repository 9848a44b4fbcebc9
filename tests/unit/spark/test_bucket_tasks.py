"""The tasks of a shuffle's buckets leave out of each garbage collection what their worker has imported."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from airflow_provider_mysql_cdc.spark import spark_tasks

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    spark_tasks._freeze_modules.cache_clear()
    yield
    spark_tasks._freeze_modules.cache_clear()


def test_a_worker_freezes_what_it_has_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one task after the other would freeze again may be garbage of the last one."""
    freeze = Mock()
    monkeypatch.setattr(gc, "freeze", freeze)
    run = spark_tasks._bucket_function(b"".join)
    assert [*run(iter([(0, b"a"), (0, b"b")])), *run(iter([(1, b"c")]))] == [b"ab", b"c"]
    freeze.assert_called_once_with()
