"""Spark's processes import pyspark compiled, from archives that hold nothing but text as they are published."""

from __future__ import annotations

import os
import subprocess
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


def test_python_takes_what_was_compiled_and_goes_by_the_text_of_another_version(tmp_path: Path) -> None:
    archive = archive_of(tmp_path)
    archives.compile_modules(archive)
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(archive) as held, zipfile.ZipFile(other, "w") as made:
        for name in held.namelist():
            data = held.read(name)
            made.writestr(name, b"\0\0\0\0" + data[4:] if name.endswith(".pyc") else data)
    for path, taken in ((archive, "some/part.pyc"), (other, "some/part.py")):
        done = subprocess.run(
            [sys.executable, "-c", "import some.part as p; print(p.NAME)"],
            env={**os.environ, "PYTHONPATH": str(path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"{path}/{taken}\n"


def test_the_checkout_s_own_archives_are_compiled() -> None:
    environment = Path(sys.executable).parent.parent
    assert archives.uncompiled(environment) == []
