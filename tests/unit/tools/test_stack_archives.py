"""Spark's processes import pyspark compiled, from archives that hold nothing but text as they are published."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

from stacklib import archives

TEXT = "NAME = __file__\n"


def archive_of(environment: Path) -> Path:
    folder = environment / "lib" / "python3.11" / "site-packages" / "pyspark" / "python" / "lib"
    folder.mkdir(parents=True)
    archive = folder / "some.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for name in ("some/__init__.py", "some/part.py", "some/tests/test_it.py", "some/data.txt"):
            made.writestr(name, TEXT)
    return archive


def test_modules_are_put_next_to_their_source_once(tmp_path: Path) -> None:
    archive = archive_of(tmp_path)
    # uv links what it installs to its cache, which other environments are made from.
    cached = tmp_path / "cached.zip"
    os.link(archive, cached)
    before = cached.read_bytes()
    assert archives.uncompiled(tmp_path) == [archive]
    archives.compile_modules(archive)
    assert archives.uncompiled(tmp_path) == [] and cached.read_bytes() == before
    with zipfile.ZipFile(archive) as held:
        names = held.namelist()
        assert held.read("some/data.txt").decode() == held.read("some/part.py").decode() == TEXT
    assert [name for name in names if name.endswith("c")] == ["some/__init__.pyc", "some/part.pyc"]
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]


def test_the_checkout_s_own_archives_are_compiled() -> None:
    environment = Path(sys.executable).parent.parent
    assert archives.uncompiled(environment) == []
