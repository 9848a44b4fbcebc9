"""The package as a pip user has it: its wheel in an environment of its own, and nothing of the checkout.

What it depends on comes from the suite's environment, so that making one takes seconds; scripts/check_installs makes
real ones.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel.

    Args:
        folder: Its folder.
        wheel: The wheel.
    """

    folder: Path
    wheel: Path

    @property
    def python(self) -> str:
        """Return its interpreter."""
        return str(self.folder / "bin" / "python")

    def run(self, *command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment elsewhere than in the checkout.

        Args:
            command: Program and arguments; the program is looked for in the environment.
            cwd: Where to run it.
            variables: Environment variables besides the usual ones.
        """
        base = {n: v for n, v in os.environ.items() if not n.startswith(("AIRFLOW", "PYTHON", "SPARK_HOME"))}
        env = {
            **base,
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            **variables,
        }
        program = [str(self.folder / "bin" / command[0]), *command[1:]]
        return subprocess.run(program, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)

    def code(self, text: str, cwd: Path, **variables: str) -> str:
        """Run Python code and return what it printed.

        Args:
            text: The code.
            cwd: Where to run it.
            variables: Environment variables besides the usual ones.
        """
        done = self.run("python", "-c", text, cwd=cwd, **variables)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the checkout without a network.

    Args:
        folder: Where it goes.
    """
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(folder: Path) -> Installed:
    """Build the wheel and install it into a new environment.

    Args:
        folder: Where both go.
    """
    wheel = build_wheel(folder / "dist")
    place = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = place / "lib" / version / "site-packages"
    # A path in a .pth file adds the folder without the .pth files in it, so without the checkout's editable install.
    dependencies = [sysconfig.get_path("purelib"), *site.getsitepackages()]
    (packages / "dependencies.pth").write_text("\n".join(dict.fromkeys(dependencies)))
    command = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*command, "--ignore-installed", str(wheel)], check=True, capture_output=True)
    return Installed(place, wheel)
