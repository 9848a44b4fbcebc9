"""Install the native kernel into ``.venv``: a wheel file, or one that cargo builds from ``native/``."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from stacklib import commands
from stacklib.errors import StackError, say

_STAMP = ".native-installed"
_SOURCES = ("Cargo.toml", "pyproject.toml", "src/*.rs")
# What the variable says counts for the process that sets it, not for what is installed.
_ASK = (
    "import os; os.environ.pop('MYSQL_CDC_NATIVE', None); "
    "from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel; "
    "k = kernel(); print('' if k.module else k.text)"
)
_REMEDY = "see its output above; without the kernel everything works, in Python"


def cargo_folder(environ: Mapping[str, str]) -> str | None:
    """Return the folder of the cargo to build with: the one on PATH, or rustup's; None where there is none.

    Args:
        environ: The environment.
    """
    rustup_folder = str(Path(environ.get("CARGO_HOME", Path(environ.get("HOME", "~")).expanduser() / ".cargo")) / "bin")
    found = shutil.which("cargo", path=f"{environ.get('PATH', '')}:{rustup_folder}")
    return None if found is None else str(Path(found).parent)


def install(root: Path, environment: Mapping[str, str], wheel: str) -> bool:
    """Install the kernel; return whether it decodes rows in the end.

    Args:
        root: The checkout.
        environment: The environment in which uv installs into the checkout's ``.venv``.
        wheel: A wheel, or empty to build one.

    Raises:
        StackError: There is no such wheel, or it cannot be built or installed.
    """
    stamp, uv = root / ".venv" / _STAMP, str(root / ".venv" / "bin" / "uv")
    folder = root / "native"
    if wheel and not Path(wheel).is_file():
        raise StackError(
            "installing the native kernel", f"there is no file {wheel}", "name a wheel, or none to build it"
        )
    wanted = _fingerprint(Path(wheel) if wheel else folder)
    rebuilt = stamp.exists() and stamp.read_text(encoding="utf-8") == wanted
    if rebuilt and not _native_state(root):
        say("native", "the native kernel is installed (nothing to do)")
        return True
    what = wheel
    if not wheel:
        cargo = cargo_folder(environment)
        if cargo is None:
            why = _native_state(root)
            remaining = f"rows are decoded by {why}" if why else "the native kernel that is installed stays"
            then = {"Python": "there is no native kernel; Python decodes everything"}.get(why, remaining)
            say("native", f"no cargo on PATH or in ~/.cargo/bin, so {then}")
            return not why
        say("native", "building the native kernel with cargo (20 to 30 seconds of CPU)")
        environment = {**environment, "PATH": f"{cargo}:{environment.get('PATH', '')}"}
        what = str(folder)
    stamp.unlink(missing_ok=True)
    name = "airflow-provider-mysql-cdc-native"
    command = [uv, "pip", "install", "--no-deps", "--reinstall-package", name, "--refresh-package", name, what]
    commands.run(command, "installing the native kernel", _REMEDY, env=environment)
    stamp.write_text(wanted, encoding="utf-8")
    why = _native_state(root)
    say(
        "native",
        f"the native kernel is installed, but rows are decoded by {why}" if why else "the native kernel is installed",
    )
    return not why


def _native_state(root: Path) -> str:
    """Return what decodes in ``.venv`` without the kernel, and why, as the log of a job says; empty with it."""
    text = commands.run([str(root / ".venv" / "bin" / "python"), "-c", _ASK], "asking for the decoder", _REMEDY)
    return text.strip()


def _fingerprint(source: Path) -> str:
    """Return the hash of a wheel, or of the sources in a folder."""
    digest = hashlib.sha256()
    files = [path for pattern in _SOURCES for path in sorted(source.glob(pattern))] if source.is_dir() else [source]
    for path in files:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
