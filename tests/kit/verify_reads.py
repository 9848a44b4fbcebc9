"""Do something when a verification reads a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.verify import checksum_reader, part_readers


def before_reading(monkeypatch: pytest.MonkeyPatch, call: Callable[[str], None]) -> None:
    """Call a function with the topic before a part of it is read, for checksums or record by record."""
    for module, name in ((part_readers, "read_messages"), (checksum_reader, "read_messages")):
        monkeypatch.setattr(module, name, _calling(getattr(module, name), call))


def _calling(read: Callable[..., Any], call: Callable[[str], None]) -> Callable[..., Any]:
    def call_and_read(cfg: Any, topic: str, *rest: Any) -> Any:
        call(topic)
        return read(cfg, topic, *rest)

    return call_and_read
