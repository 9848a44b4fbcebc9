"""The environment that the lock file describes."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_pyspark_client_does_not_overwrite_pyspark() -> None:
    """docs/adr/0003: both own the folder pyspark/, so only one may be installed."""
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("pyspark-client")
    import pyspark

    assert pyspark.__version__ == importlib.metadata.version("pyspark")


def test_lock_names_no_registry_and_leaves_pyspark_client_out() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    lines = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert not re.search(r"https?://", lock)
    assert not any(line.startswith("pyspark-client") and "never" not in line for line in lines)
    assert all("==" in line for line in lines)


def test_every_dependency_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    block = text[text.index("dependencies = [") : text.index("[project.entry-points")]
    previous = ""
    for line in block.splitlines():
        if re.match(r'\s+"(?!types-)', line):
            assert previous.strip().startswith("#"), f"no reason above {line.strip()}"
        previous = line
