"""Build the wheels that are published: the package's, and the native kernel's for every platform.

The kernel's wheels are of Python's stable ABI, so one of a platform fits every Python of ``requires-python``. Zig links
them against an old C library (manylinux2014) and for other machines; rustup has the standard library of each target.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from stacklib import commands
from stacklib.bootstrap import Bootstrap
from stacklib.errors import StackError, say
from stacklib.native import cargo_folder
from stacklib.settings import REPOSITORY

TARGETS = MappingProxyType(
    {
        "x86_64-unknown-linux-gnu": "manylinux2014_x86_64",
        "aarch64-unknown-linux-gnu": "manylinux2014_aarch64",
        "x86_64-apple-darwin": "macosx_10_12_x86_64",
        "aarch64-apple-darwin": "macosx_11_0_arm64",
    }
)
"""Rust's targets, with the platform tag of each wheel."""
_MATURIN = ("--from", "maturin>=1.7,<2", "--with", "ziglang>=0.13,<0.18", "maturin", "build", "--release", "--zig")
_LOAD = "import mysql_cdc_native"
_REMEDY = "see its output above"


def main(argv: Sequence[str] | None = None) -> int:
    """Build the wheels into a folder; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="scripts/wheels",
        description="Build the wheels of the package and of its native kernel (needs cargo and rustup).",
    )
    parser.add_argument("--out", default="dist", metavar="FOLDER", help="where to write them (default: dist)")
    parser.add_argument(
        "--target", action="append", choices=list(TARGETS), help="only these of the kernel's; can be repeated"
    )
    arguments = parser.parse_args(argv)
    try:
        for wheel in build(Path(arguments.out).resolve(), arguments.target or list(TARGETS)):
            print(wheel)
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def build(out: Path, targets: Sequence[str]) -> list[Path]:
    """Return the wheels: the package's, then the kernel's for each target.

    Raises:
        StackError: Cargo or rustup is missing, or a build failed.
    """
    cargo = cargo_folder(os.environ)
    if cargo is None:
        raise StackError("building wheels", "there is no cargo on PATH or in ~/.cargo/bin", "install Rust with rustup")
    base = Bootstrap(REPOSITORY).environment()
    environment = {**base, "PATH": f"{cargo}:{base.get('PATH', '')}"}
    uv = str(REPOSITORY / ".venv" / "bin" / "uv")
    say("wheels", "airflow-provider-mysql-cdc")
    wheels = [_built(out, [uv, "build", "--wheel", "--out-dir", str(out), str(REPOSITORY)], "*-any.whl", environment)]
    for target in targets:
        _add_target(target, environment)
        say("wheels", f"airflow-provider-mysql-cdc-native for {TARGETS[target]}")
        command = [uv, "tool", "run", *_MATURIN, "--target", target, *_paths(out)]
        if target.endswith("linux-gnu"):
            command += ["--compatibility", "manylinux2014"]
        wheels.append(_built(out, command, f"*-abi3-{TARGETS[target]}*.whl", environment))
        if sys.platform == "linux" and target == f"{platform.machine()}-unknown-linux-gnu":
            load = [uv, "run", "--no-project", "--isolated", "--with", str(wheels[-1]), "python", "-c", _LOAD]
            commands.run(load, "loading the wheel of this machine", _REMEDY, env=environment)
    return wheels


def _paths(out: Path) -> list[str]:
    return ["--manifest-path", str(REPOSITORY / "native" / "Cargo.toml"), "--out", str(out)]


def _add_target(target: str, environment: Mapping[str, str]) -> None:
    """Have the standard library of a target, from rustup where it is not there."""
    path = environment["PATH"]
    libraries = subprocess.run(
        ["rustc", "--print", "target-libdir", "--target", target],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if libraries.returncode == 0 and Path(libraries.stdout.strip()).is_dir():
        return
    rustup = shutil.which("rustup", path=path)
    if rustup is None:
        raise StackError(f"building for {target}", "Rust has no standard library for it", "install Rust with rustup")
    say("wheels", f"rustup target add {target}")
    commands.run([rustup, "target", "add", target], f"fetching Rust's library for {target}", _REMEDY, env=environment)


def _built(out: Path, command: Sequence[str], name: str, environment: Mapping[str, str]) -> Path:
    """Run a build; return its wheel."""
    for earlier in out.glob(name):
        earlier.unlink()
    commands.run(command, "building a wheel", _REMEDY, env=environment)
    wheels = list(out.glob(name))
    if len(wheels) != 1:
        raise StackError(
            "building a wheel", f"{len(wheels)} files match {out / name}", "remove what is left of earlier builds"
        )
    return wheels[0]


if __name__ == "__main__":
    sys.exit(main())
