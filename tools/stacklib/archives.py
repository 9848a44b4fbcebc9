"""Compile the modules in pyspark's archives; standard library only, the environment's own Python runs this file.

Spark puts ``python/lib/*.zip`` in front of the module path of its drivers and of its tasks' processes (PythonUtils,
``sparkPythonPath``). The archives hold nothing but text, and an import from an archive keeps nothing: each process
compiles again what it imports, for 0.5 CPU seconds (measured).
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
import warnings
import zipfile
from pathlib import Path

# PEP 552: a file with an unchecked hash of its source; times in archives are those of a build.
_UNCHECKED = (1).to_bytes(4, "little")


def uncompiled(environment: Path) -> list[Path]:
    """Return the archives of an environment's pyspark that hold text alone."""
    found = []
    for archive in sorted(environment.glob("lib/python3*/site-packages/pyspark/python/lib/*.zip")):
        with zipfile.ZipFile(archive) as members:
            if not any(name.endswith(".pyc") for name in members.namelist()):
                found.append(archive)
    return found


def compile_modules(archive: Path) -> None:
    """Put the compiled modules of this Python next to the source in an archive; another Python goes by the text.

    Args:
        archive: The archive; uv may have linked it to a file of its cache, which stays as it is.
    """
    partial = archive.with_name(f".{archive.name}.partial")
    with zipfile.ZipFile(archive) as members, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as made:
        for member in members.infolist():
            data = members.read(member)
            made.writestr(member, data)
            if member.filename.endswith(".py") and "/tests/" not in member.filename:
                made.writestr(f"{member.filename}c", _compiled(data, f"{archive}/{member.filename}"))
    partial.replace(archive)


def _compiled(source: bytes, name: str) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        code = compile(source, name, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source) + marshal.dumps(code)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        compile_modules(Path(given))
