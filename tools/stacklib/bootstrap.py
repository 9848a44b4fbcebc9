"""Create the virtual environment from the lock file; standard library only, it runs before anything is installed."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from stacklib import archives, commands, debian, native
from stacklib.errors import StackError, say
from stacklib.locks import exclusive
from stacklib.settings import REPOSITORY, cache_dir

_REMEDY = "check network and package index settings (pip config list), then run scripts/bootstrap again"
_STAMP = ".lock-installed"
_HEARTBEAT_SECONDS = 15.0

# pip's settings and the environment variables by which uv takes the same ones. Indexes may carry credentials, so
# they travel in the environment and never on a command line.
_PIP_TO_UV = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "no-index": ("UV_NO_INDEX",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
}


def uv_environment(pip_config: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for uv: ``environ`` with pip's settings translated where uv has none of its own.

    Args:
        pip_config: output of ``pip config list``, lines such as ``global.index-url='...'``.
        environ: environment to start from; its own settings for uv take precedence.
    """
    values: dict[str, str] = {}
    # pip lets a setting of one command win over a global one, and the environment over both.
    order = {"global": 0, "install": 1, ":env:": 2}
    found: list[tuple[int, str, str]] = []
    for line in pip_config.splitlines():
        match = re.match(r"(global|install|:env:)\.([a-z_-]+)=(.*)", line)
        if match:
            found.append((order[match[1]], match[2].replace("_", "-"), _unquote(match[3])))
    for _, name, text in sorted(found, key=lambda item: item[0]):
        for variable in _PIP_TO_UV.get(name, ()):
            values[variable] = " ".join(text.split())
    if "UV_FIND_LINKS" in values:
        values["UV_FIND_LINKS"] = ",".join(values["UV_FIND_LINKS"].split())
    return {**values, **environ}


def _unquote(text: str) -> str:
    try:
        parts = shlex.split(text)
    except ValueError:
        return text
    # A setting of several lines is printed with \n written out.
    return " ".join(parts).replace("\\n", " ")


class Bootstrap:
    """One run: the checkout, its ``.venv``, and the steps that complete it."""

    def __init__(
        self, root: Path, venv: str = ".venv", lock: str = "requirements.lock", *, with_project: bool = True
    ) -> None:
        """Take the checkout that holds the lock file and pyproject.toml."""
        self._root = root
        self._venv = root / venv
        self._python = str(self._venv / "bin" / "python")
        self._lock = root / lock
        self._with_project = with_project

    def fingerprint(self) -> str:
        """Return the hash of everything the environment is made from."""
        digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
        for path in (self._lock, self._root / "pyproject.toml"):
            try:
                digest.update(path.read_bytes())
            except OSError as error:
                raise StackError(
                    f"reading {path.name}", str(error.strerror), "run scripts/bootstrap from a complete checkout"
                ) from error
        return digest.hexdigest()

    def run(self, install_more: Callable[[], None] = lambda: None) -> bool:
        """Bring the environment up to date; return False when it already was.

        Args:
            install_more: Installs what the lock file does not name, while no other run works on the environment.
        """
        fingerprint = self.fingerprint()
        guard = hashlib.sha256(str(self._venv).encode()).hexdigest()[:12]
        with exclusive(cache_dir() / f".bootstrap-{guard}.lock", "creating the same environment"):
            stamp = self._venv / _STAMP
            current_stamp = self._works() and stamp.exists() and stamp.read_text(encoding="utf-8") == fingerprint
            if not current_stamp:
                stamp.unlink(missing_ok=True)
                self._create()
                environment = self._install_uv()
                self._install(environment)
                stamp.write_text(fingerprint, encoding="utf-8")
            self._compile_archives()
            install_more()
        return not current_stamp

    def _compile_archives(self) -> None:
        if waiting := archives.uncompiled(self._venv):
            say("venv", "compiling the modules in pyspark's archives")
            command = [self._python, archives.__file__, *map(str, waiting)]
            commands.run(command, "compiling pyspark's archives", _REMEDY)

    def _works(self) -> bool:
        try:
            done = subprocess.run([self._python, "-c", ""], capture_output=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def _create(self) -> None:
        if not self._works():
            version = ".".join(str(part) for part in sys.version_info[:3])
            say("venv", f"creating {self._venv.name} with Python {version}")
            command = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(self._venv)]
            commands.run(command, "creating the virtual environment", "see whether Python's venv module is complete")
        if subprocess.run([self._python, "-m", "pip", "--version"], capture_output=True, check=False).returncode != 0:
            self._install_pip()

    def _install_pip(self) -> None:
        bundled = [self._python, "-m", "ensurepip", "--default-pip"]
        if subprocess.run(bundled, capture_output=True, check=False).returncode == 0:
            return
        say("venv", "this Python comes without ensurepip; taking pip from Debian's package python3-pip-whl")
        with TemporaryDirectory(prefix="bootstrap-pip-") as folder:
            debian.fetch(["python3-pip-whl"], Path(folder), "venv", None)
            wheels = sorted(Path(folder).glob("usr/share/python-wheels/pip-*.whl"))
            if not wheels:
                raise StackError(
                    "installing pip", "python3-pip-whl holds no pip wheel", "apt-get install python3-venv, then again"
                )
            command = [self._python, f"{wheels[-1]}/pip", "install", "-q", "--no-index", "--no-deps", str(wheels[-1])]
            commands.run(command, "installing pip", "apt-get install python3-venv, then run scripts/bootstrap again")

    def _install_uv(self) -> dict[str, str]:
        if not (self._venv / "bin" / "uv").exists():
            say("venv", "installing uv")
            commands.run([self._python, "-m", "pip", "install", "-q", "uv"], "installing uv", _REMEDY)
        return self.environment()

    def environment(self) -> dict[str, str]:
        """Return the environment in which uv installs into ``.venv``."""
        config = subprocess.run(
            [self._python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
        ).stdout
        return {**uv_environment(config, os.environ), "VIRTUAL_ENV": str(self._venv)}

    def _install(self, environment: Mapping[str, str]) -> None:
        uv = str(self._venv / "bin" / "uv")
        size = "some hundred MB" if self._with_project else "some 50 MB"
        say("venv", f"installing the locked packages ({size} the first time)")
        self._uv(
            [uv, "pip", "install", "--no-deps", "--require-hashes", "-r", str(self._lock)],
            f"installing {self._lock.name}",
            environment,
        )
        if not self._with_project:
            return
        say("venv", "installing this project, editable")
        self._uv([uv, "pip", "install", "--no-deps", "-e", str(self._root)], "installing this project", environment)

    def _uv(self, command: Sequence[str], purpose: str, environment: Mapping[str, str]) -> None:
        output = time.monotonic()

        def progress(line: str) -> None:
            nonlocal output
            if re.match(r"(Resolved|Prepared|Installed|Uninstalled|Downloading|Using CPython)\b", line):
                interesting = not line.startswith("Downloading") or time.monotonic() - output > _HEARTBEAT_SECONDS
                if interesting:
                    say("venv", line.strip())
                    output = time.monotonic()

        commands.run(command, purpose, _REMEDY, env=environment, on_line=progress)


def main(argv: Sequence[str] | None = None) -> int:
    """Create or update ``.venv``; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="scripts/bootstrap", description="Create .venv from requirements.lock; safe to repeat."
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing when there is nothing to do")
    parser.add_argument(
        "--native",
        nargs="?",
        const="",
        metavar="WHEEL",
        help="install the native kernel from this wheel; without one, fail where cargo cannot build it",
    )
    arguments = parser.parse_args(argv)
    try:
        bootstrap = Bootstrap(REPOSITORY)

        def install_kernel() -> None:
            if arguments.native is None:
                native.install_if_possible(REPOSITORY, os.environ, bootstrap.environment, quiet=arguments.quiet)
            else:
                native.install(REPOSITORY, bootstrap.environment(), arguments.native)

        changed = bootstrap.run(install_kernel)
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run it again to complete the environment", file=sys.stderr)
        return 130
    if changed or not arguments.quiet:
        say("venv", f"{REPOSITORY / '.venv'} is ready" + ("" if changed else " (nothing to do)"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
