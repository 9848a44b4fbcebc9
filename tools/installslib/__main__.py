"""Create each environment of docs/install.md and test it."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stacklib.bootstrap import uv_environment
from stacklib.settings import REPOSITORY

PACKAGE = "airflow_provider_mysql_cdc"


@dataclass(frozen=True)
class Install:
    """One documented command.

    Args:
        extra: The package's extra, as in the command.
        more: Further requirements of the command.
        probe: ``spark`` where the environment has a Spark of its own.
    """

    tool: str
    extra: str = ""
    more: tuple[str, ...] = ()
    probe: str = "base"


INSTALLS = {
    "worker-pip": Install("pip"),
    "worker-uv": Install("uv"),
    "oldest-airflow": Install("uv", more=("apache-airflow==3.3.0",)),
    "laptop-pip": Install("pip", "[spark]", probe="spark"),
    "laptop-uv": Install("uv", "[spark]", probe="spark"),
    "postgres": Install("uv", "[postgres]"),
    "kubernetes": Install("uv", "[cncf-kubernetes]"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/check_installs", description=__doc__)
    parser.add_argument("--only", action="append", choices=INSTALLS, help="only this one; repeatable")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="make them here and keep them")
    options = parser.parse_args(argv)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="mysql-cdc-installs-"))
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    try:
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")], REPOSITORY)
        (wheel,) = (folder / "dist").glob("*.whl")
        dags = _dags(folder / "dags")
        for name in options.only or INSTALLS:
            began = time.monotonic()
            error = _try_install(INSTALLS[name], folder / name, wheel, dags)
            print(f"{name}: {'failed' if error else 'ok'} after {time.monotonic() - began:.0f} s\n{error}", flush=True)
            failed += [name] if error else []
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(failed)} failed: {', '.join(failed)}" if failed else "all are well")
    return 1 if failed else 0


def _dags(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for path in (REPOSITORY / PACKAGE / "example_dags").glob("mysql_cdc_*.py"):
        (folder / path.name).write_text(f"from {PACKAGE}.example_dags.{path.stem} import dag\n")
    return folder


def _try_install(install: Install, folder: Path, wheel: Path, dags: Path) -> str:
    """Make an environment and try it; return what went wrong."""
    python = str(folder / "bin" / "python")
    shutil.rmtree(folder, ignore_errors=True)
    requirements = [*install.more, f"{wheel}{install.extra}"]
    pip = [python, "-m", "pip", "install", "-q", *requirements]
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "-q", "--python", python, *requirements]
    try:
        # pip comes with venv; an environment for uv needs none.
        _run(
            [sys.executable, "-m", "venv", *(["--without-pip"] if install.tool == "uv" else []), str(folder)],
            folder.parent,
        )
        _run(pip if install.tool == "pip" else uv, folder.parent)
        probe = Path(__file__).with_name("probe.py")
        print(_run([python, str(probe), install.probe, str(dags)], folder), end="")
        print(_run([str(folder / "bin" / "mysql-cdc"), "--version"], folder), end="")
    except subprocess.CalledProcessError as error:
        return f"{error.cmd}\n{(error.stdout or '')[-1000:]}{(error.stderr or '')[-3000:]}"
    return ""


def _run(command: Sequence[str], cwd: Path) -> str:
    config = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    remaining = ("AIRFLOW", "PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME")
    base = {name: value for name, value in os.environ.items() if not name.startswith(remaining)}
    env = {**uv_environment(config.stdout, base), "AIRFLOW_HOME": str(cwd / "airflow")}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
