"""The real listener of OpenLineage's provider in this process, writing to a file with the real client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def lineage_events(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Path]:
    """Let the listener write the events of tasks that run inside into a file; return the file."""
    from airflow.providers.openlineage import conf
    from airflow.providers.openlineage.plugins.listener import OpenLineageListener
    from airflow.sdk.execution_time.task_runner import get_listener_manager

    file = folder / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__DISABLED", "False")
    cached = [member for member in vars(conf).values() if hasattr(member, "cache_clear")]
    for function in cached:
        function.cache_clear()
    manager = get_listener_manager()  # has the listener already where it was not made before
    if not any(isinstance(plugin, OpenLineageListener) for plugin in manager.pm.get_plugins()):
        manager.add_listener(OpenLineageListener())
    try:
        yield file
    finally:
        for plugin in [plugin for plugin in manager.pm.get_plugins() if isinstance(plugin, OpenLineageListener)]:
            manager.pm.unregister(plugin)
        for function in cached:
            function.cache_clear()


def events_of(file: Path, task_id: str) -> list[dict[str, Any]]:
    """Return the events of a task, in the order in which they were written."""
    events = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [event for event in events if event["job"]["name"].endswith(f".{task_id}")]


def by_name(datasets: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return datasets by namespace and name, each of which is there once."""
    found = {(dataset["namespace"], dataset["name"]): dataset for dataset in datasets}
    assert len(found) == len(datasets)
    return found
