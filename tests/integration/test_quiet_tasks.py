"""A cluster that ends Python workers that are quiet for a while: a writer waits for the next batch all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.sql import execute
from kit.table_rig import check_chain, filled
from pipelinelib.pipeline import Pipeline

pytestmark = [pytest.mark.stack, pytest.mark.spark]
PROPERTIES = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}
CLUSTER = "-Dspark.python.worker.idleTimeoutSeconds=1 -Dspark.python.worker.killOnIdleTimeout=true"


@pytest.mark.exhaustive
def test_a_writer_without_changes_is_not_ended(
    pipeline: Pipeline, root: Any, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(root, *filled(database, "a", count=20))
    pipeline.snapshot()
    execute(root, f"UPDATE `{database}`.a SET v = 1 WHERE id < 7")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", CLUSTER)
    done = pipeline.on_spark("drain", tmp_path, run_for_s=6)
    assert done.returncode == 0, done.stdout
    assert pipeline.settle().complete
    check_chain(pipeline, root, database, "a")
