"""What goes into the packed environment of Spark's tasks, and what is said when it cannot be packed."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.environment import interpreter, packed
from airflow_provider_mysql_cdc.environment.__main__ import main
from airflow_provider_mysql_cdc.spark.errors import executor_error


def test_the_core_needs_what_is_declared_without_airflow_spark_and_what_only_the_worker_uses() -> None:
    declared = {
        re.split(r"[<>=\[;! ]", r)[0]
        for r in metadata.requires(interpreter.OWN_DISTRIBUTION) or ()
        if "extra ==" not in r
    }
    # The kernel is packed where it is installed.
    found = set(interpreter.required_distributions()) - {f"{interpreter.OWN_DISTRIBUTION}-native"}
    assert {n for n in declared if not n.startswith("apache-airflow")} - found == {"sqlalchemy"}
    assert {"pymysql", "confluent-kafka", "regex", "cffi"} <= found
    assert not [name for name in found if "airflow" in name or "spark" in name]


def test_the_registrys_client_is_packed_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"authlib", "cachetools", "certifi"} <= set(interpreter.required_distributions())
    installed = interpreter._installed

    def without(name: str) -> metadata.Distribution:
        if name == "authlib":
            raise ConfigError("the package authlib is not installed")
        return installed(name)

    monkeypatch.setattr(interpreter, "_installed", without)
    assert "cachetools" not in interpreter.required_distributions()


def test_a_further_package_comes_with_what_it_needs() -> None:
    assert {"click"} <= set(interpreter.required_distributions(["uvicorn"])) - set(interpreter.required_distributions())


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="my-converters is not installed"):
        interpreter.required_distributions(["My_Converters"])


def test_only_the_core_of_this_package_is_packed_with_its_applications() -> None:
    names = {name for name, _ in interpreter.own_files()}
    assert {name.split("/")[1] for name in names} == {"__init__.py", "py.typed", "cdc", "spark", "spark_jobs"}
    assert "airflow_provider_mysql_cdc/spark_jobs/drain_binlog.py" in names
    assert not [name for name in names if name.endswith(".pyc")]


def test_an_interpreter_of_a_virtual_environment_answers_for_its_base() -> None:
    found = interpreter.describe_interpreter(sys.executable)
    assert found.version == sys.version_info[:3]
    assert found.stdlib.is_relative_to(Path(sys.base_prefix).resolve())
    names = dict(interpreter.interpreter_files(found))
    assert f"bin/python{found.minor}" in names
    stdlib = f"lib/python{found.minor}" if "lib/" in "".join(names) else ""
    assert f"{stdlib}/os.py" in names
    assert not [n for n in names if re.search(r"/(site-packages|test|idlelib|__pycache__)/", n)]
    assert not [n for n in names if re.search(r"shared/(libc|ld-linux\S*)\.so", n)], "it is the machine's"


def test_the_packages_of_a_base_interpreter_are_where_it_looks_itself(tmp_path: Path) -> None:
    # Debian's site answers for equal arguments with site-packages inside and dist-packages outside of an environment.
    described = {"version": [3, 11, 2], "tag": "cpython-311", "platform": "linux-x86_64", "prefix": "/usr"}
    described |= {"stdlib": "/usr/lib/python3.11", "program": str(tmp_path / "base")}
    for name, virtual, folder in (("base", False, "dist-packages"), ("venv", True, "site-packages")):
        text = json.dumps({**described, "virtual": virtual, "packages": f"/usr/lib/python3.11/{folder}"})
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{text}'\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    found = interpreter.describe_interpreter(str(tmp_path / "venv"))
    assert found.packages == Path("/usr/lib/python3.11/dist-packages")


@pytest.mark.parametrize("wanted", ["/no/such/python", "3.99"])
def test_an_interpreter_that_is_not_there_is_named(wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--python", wanted]) == 1
    told = capsys.readouterr().err
    assert told.startswith("ConfigError") and wanted in told and "--python" in told


def test_an_interpreter_of_the_machines_is_of_the_version_that_was_packed_for(tmp_path: Path) -> None:
    """Another one would end in an ImportError of some extension module, in the log of some executor."""
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    packed._write_launchers(tmp_path / "bin", minor, sys.executable)
    launcher = [str(tmp_path / "bin" / "python"), "-c", "print('runs')"]
    assert subprocess.run(launcher, capture_output=True, text=True, check=False).stdout == "runs\n"
    packed._write_launchers(tmp_path / "bin", "3.99", sys.executable)
    done = subprocess.run(launcher, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (78, "")
    named = executor_error(RuntimeError(f"Error from python worker:\n  {done.stderr}"))
    assert named is not None and f"{sys.executable} is Python {minor}" in named.message() and "3.99" in named.message()
    packed._write_launchers(tmp_path / "bin", minor, "/no/such/python")
    assert subprocess.run(launcher, capture_output=True, text=True, check=False).returncode == 78


def test_only_archives_that_were_packed_here_have_a_manifest(tmp_path: Path) -> None:
    other = tmp_path / "other.tar.gz"
    with tarfile.open(other, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("bin/python"), io.BytesIO())
    assert packed.read_manifest(other) is None
    assert packed.read_manifest(tmp_path / "missing.tar.gz") is None
    other.write_bytes(b"no archive")
    assert packed.read_manifest(other) is None


def test_the_packages_that_are_asked_for_are_packed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(more: list[str]) -> None:
        raise ConfigError(f"asked for {more}")

    monkeypatch.setattr(interpreter, "required_distributions", refuse)
    with pytest.raises(ConfigError, match=r"asked for .*mine"):
        packed.pack(tmp_path / "e.tar.gz", more=["mine"])
