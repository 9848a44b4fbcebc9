"""Install the native kernel into ``.venv``: a wheel file, or one that cargo builds from ``native/``."""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from stacklib import commands
from stacklib.errors import StackError, say
from stacklib.locks import build_once
from stacklib.settings import cache_dir

_STAMP, _FAILED_STAMP = ".native-installed", ".native-failed"
_OF_WHEEL = "wheel "
_SWITCH, _OFF = "MYSQL_CDC_NATIVE", ("off", "0", "false", "no")
_BUILDING = "building the native kernel"
_TRY_AGAIN = "scripts/bootstrap --native tries again and shows why"
_SOURCES = ("Cargo.toml", "pyproject.toml", "src/*.rs")
# What the variable says counts for the process that sets it, not for what is installed.
_ASK = (
    "import os; os.environ.pop('MYSQL_CDC_NATIVE', None); "
    "from airflow_provider_mysql_cdc.cdc.decode.native_kernel import kernel; "
    "k = kernel(); print('' if k.module else k.text)"
)
_REMEDY = "see its output above; without the kernel everything works, in Python"


def cargo_folder(environ: Mapping[str, str]) -> str | None:
    """Return the folder of the cargo to build with: the one on PATH, or rustup's; None where there is none."""
    rustup_folder = str(Path(environ.get("CARGO_HOME", Path(environ.get("HOME", "~")).expanduser() / ".cargo")) / "bin")
    found = shutil.which("cargo", path=f"{environ.get('PATH', '')}:{rustup_folder}")
    return None if found is None else str(Path(found).parent)


def install_if_possible(
    root: Path, environ: Mapping[str, str], uv_environment: Callable[[], Mapping[str, str]], *, quiet: bool
) -> None:
    """Build and install the kernel where there is a cargo; say in one line where there is none, and never fail.

    A build that failed is not tried again until the sources change. A kernel installed from a wheel stays.

    Args:
        root: The checkout.
        environ: The environment.
        uv_environment: Returns the environment in which uv installs into the checkout's ``.venv``.
        quiet: Say nothing when there is nothing to do.
    """
    if environ.get(_SWITCH, "").strip().lower() in _OFF:
        return
    stamp, failed = root / ".venv" / _STAMP, root / ".venv" / _FAILED_STAMP
    wanted = _fingerprint(root / "native")
    if _text(stamp).startswith(_OF_WHEEL) or _text(stamp) == wanted:
        return
    if cargo_folder(environ) is None:
        if not quiet:
            say("native", _without_cargo(_native_state(root)))
        return
    if _text(failed) == wanted:
        if not quiet:
            say("native", f"the native kernel could not be built before, so Python decodes; {_TRY_AGAIN}")
        return
    try:
        install(root, uv_environment(), "")
    except StackError as error:
        failed.write_text(wanted, encoding="utf-8")
        say("native", f"the native kernel cannot be built ({error}), so Python decodes; {_TRY_AGAIN}")


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
    if wheel and not Path(wheel).is_file():
        raise StackError(
            "installing the native kernel", f"there is no file {wheel}", "name a wheel, or none to build it"
        )
    wanted = _OF_WHEEL + _fingerprint(Path(wheel)) if wheel else _fingerprint(root / "native")
    if _text(stamp) == wanted and not _native_state(root):
        say("native", "the native kernel is installed (nothing to do)")
        return True
    if not wheel:
        cargo = cargo_folder(environment)
        if cargo is None:
            why = _native_state(root)
            say("native", _without_cargo(why))
            return not why
        wheel = _built(root / "native", uv, {**environment, "PATH": f"{cargo}:{environment.get('PATH', '')}"})
    stamp.unlink(missing_ok=True)
    name = "airflow-provider-mysql-cdc-native"
    command = [uv, "pip", "install", "--no-deps", "--reinstall-package", name, "--refresh-package", name, wheel]
    commands.run(command, "installing the native kernel", _REMEDY, env=environment)
    stamp.write_text(wanted, encoding="utf-8")
    (root / ".venv" / _FAILED_STAMP).unlink(missing_ok=True)
    why = _native_state(root)
    say(
        "native",
        f"the native kernel is installed, but rows are decoded by {why}" if why else "the native kernel is installed",
    )
    return not why


def _built(folder: Path, uv: str, environment: Mapping[str, str]) -> str:
    """Return the wheel of these sources for this machine, built once for all checkouts."""

    def build(target: Path) -> None:
        commands.run(
            [uv, "build", "--wheel", "--out-dir", str(target), str(folder)], _BUILDING, _REMEDY, env=environment
        )

    name = f"native-{_fingerprint(folder)[:16]}-{platform.machine()}"
    built = build_once(cache_dir() / name, build, "native", "the native kernel", "building")
    return str(next(built.glob("*.whl")))


def _without_cargo(why: str) -> str:
    """Return the line that says what decodes where there is no cargo.

    Args:
        why: What decodes without the kernel; empty with it.
    """
    remaining = f"rows are decoded by {why}" if why else "the native kernel that is installed stays"
    then = {"Python": "there is no native kernel; Python decodes everything"}.get(why, remaining)
    return f"no cargo on PATH or in ~/.cargo/bin, so {then}"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


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
