"""Install the native kernel into ``.venv``: a wheel that is given, or one that cargo builds from ``native/``."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from stacklib import commands
from stacklib.errors import say

_STAMP = ".native-installed"
_SOURCES = ("Cargo.toml", "pyproject.toml", "src/*.rs")
_REMEDY = "see what it says above; without the kernel everything works, in Python"


def cargo_folder(environ: Mapping[str, str]) -> str | None:
    """Return the folder of the cargo to build with: the one on PATH, or rustup's; None where there is none.

    Args:
        environ: The environment.
    """
    own = str(Path(environ.get("CARGO_HOME", Path(environ.get("HOME", "~")).expanduser() / ".cargo")) / "bin")
    found = shutil.which("cargo", path=f"{environ.get('PATH', '')}:{own}")
    return None if found is None else str(Path(found).parent)


def install(root: Path, environment: Mapping[str, str], wheel: str) -> bool:
    """Install the kernel; return whether it is there in the end.

    Args:
        root: The checkout.
        environment: The environment in which uv installs into the checkout's ``.venv``.
        wheel: A wheel, or empty to build one.

    Raises:
        StackError: It cannot be built or installed.
    """
    stamp, uv = root / ".venv" / _STAMP, str(root / ".venv" / "bin" / "uv")
    folder = root / "native"
    wanted = _fingerprint(Path(wheel) if wheel else folder)
    there = any((root / ".venv").glob("lib/*/site-packages/mysql_cdc_native/*.so"))
    if there and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        say("native", "the native kernel is installed (nothing to do)")
        return True
    what = wheel
    if not wheel:
        cargo = cargo_folder(environment)
        if cargo is None:
            say(
                "native", "no cargo on PATH or in ~/.cargo/bin, so there is no native kernel; Python decodes everything"
            )
            return False
        say("native", "building the native kernel with cargo (20 to 30 seconds of CPU)")
        environment = {**environment, "PATH": f"{cargo}:{environment.get('PATH', '')}"}
        what = str(folder)
    stamp.unlink(missing_ok=True)
    name = "airflow-provider-mysql-cdc-native"
    command = [uv, "pip", "install", "--no-deps", "--reinstall-package", name, "--refresh-package", name, what]
    commands.run(command, "installing the native kernel", _REMEDY, env=environment)
    stamp.write_text(wanted, encoding="utf-8")
    say("native", "the native kernel is installed")
    return True


def _fingerprint(source: Path) -> str:
    """Return the hash of a wheel, or of the sources in a folder."""
    digest = hashlib.sha256()
    files = [path for pattern in _SOURCES for path in sorted(source.glob(pattern))] if source.is_dir() else [source]
    for path in files:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
