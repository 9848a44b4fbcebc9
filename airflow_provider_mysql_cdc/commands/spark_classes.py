"""``mysql-cdc spark-classes``: keep the classes of a Spark driver in a file, which its JVM maps when it starts.

A JVM that maps them does not read, check and link some 10,000 classes in each of its starts. It takes the file only
when its classpath begins with the jars that it was made of, and no folder with files stands among them; else it starts
as without. Source: JEP 350 and the manual page of ``java``, -XX:ArchiveClassesAtExit and -XX:SharedArchiveFile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

_EMPTY_JOB = Path(__file__).resolve().parent.parent / "spark" / "empty_job.py"
# Folders that Spark's launcher puts behind its jars; a classpath may have more than the file knows at its end.
_CLASSPATH_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_JOB_TIMEOUT_S = 600
_ERROR_LINES = 5
"""Last lines of a job's output that an error shows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options.

    Args:
        parser: Takes them.
    """
    default = Path("spark-classes.jsa")
    parser.add_argument("--output", type=Path, default=default, help="file to write (%(default)s)")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Write the file and say how it is used; return the exit code.

    Args:
        arguments: What the command line says.
        out: Takes the text.

    Raises:
        ConfigError: See ``archive_classes``.
    """
    path = arguments.output.resolve()
    archive_classes(path)
    conf = {"conf": {"spark.driver.defaultJavaOptions": f"-XX:SharedArchiveFile={path}"}}
    print(f"use it with this in the extra of the Spark connection: {json.dumps(conf)}", file=out)
    return 0


def archive_classes(path: Path) -> None:
    """Run an empty job on this host that leaves its classes in a file, and one that has to start from it.

    Args:
        path: The file; it is replaced once the second job has ended well.

    Raises:
        ConfigError: Spark or Java is missing, the JVM cannot keep the classes, or cannot start from them.
    """
    env = _env()
    _require_no_settings(env)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            archive = Path(folder) / path.name
            _submit(env, f"-XX:ArchiveClassesAtExit={archive}")
            if not archive.is_file():
                raise _archive_error(
                    env, "it left no file", "use Java 17 or newer, with the archive of its own classes"
                )
            # Without "on" a JVM that cannot map the file goes on without.
            _submit(env, f"-XX:SharedArchiveFile={archive} -Xshare:on")
            archive.replace(path)
    except OSError as error:
        raise ConfigError(
            "the file cannot be written", where=str(path), why=str(error), remedy="name another with --output"
        ) from error


def _env() -> dict[str, str]:
    from airflow_provider_mysql_cdc.hooks.spark_python import choose_python, driver_env, require_programs

    inherited = {name: value for name, value in os.environ.items() if name not in _CLASSPATH_VARIABLES}
    env = choose_python("local[1]", "client", env=driver_env(inherited, {"SPARK_LOCAL_IP": "127.0.0.1"}), conf={}).env
    require_programs("spark-submit", env)
    return env


def _require_no_settings(env: Mapping[str, str]) -> None:
    folder = Path(env.get("SPARK_CONF_DIR") or Path(env.get("SPARK_HOME", "")) / "conf")
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(
            "the classes of this Spark cannot be kept in a file",
            where=str(folder),
            why="it has files and stands on the driver's classpath, and a JVM keeps no classes then",
            remedy="jobs run as before; or put the settings into a file that the operator's properties_file names, "
            "and set SPARK_CONF_DIR to an empty folder, here and for the tasks",
        )


def _submit(env: Mapping[str, str], option: str) -> None:
    from airflow_provider_mysql_cdc.hooks.spark_defaults import DEFAULT_CONF, JAVA_OPTIONS, with_defaults

    conf = with_defaults(DEFAULT_CONF, cluster={}, requested={"spark.ui.enabled": "false"}, env=env)
    # Each class that cannot be kept is a warning.
    conf[JAVA_OPTIONS] += f" -Xlog:cds=error -Xlog:cds+dynamic=error {option}"
    settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    command = ["spark-submit", "--master", "local[1]", *settings, str(_EMPTY_JOB)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = subprocess.run(
                command, env=dict(env), cwd=folder, capture_output=True, text=True, timeout=_JOB_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise _archive_error(env, f"an empty job took more than {_JOB_TIMEOUT_S} s", "run it again") from error
    if result.returncode:
        lines = (result.stdout + result.stderr).strip().splitlines()[-_ERROR_LINES:]
        raise _archive_error(
            env, " | ".join(lines), "run spark-submit by hand; jobs that do not name the file run without"
        )


def _archive_error(env: Mapping[str, str], why: str, remedy: str) -> ConfigError:
    where = f"SPARK_HOME={env.get('SPARK_HOME', '')}, JAVA_HOME={env.get('JAVA_HOME', '(not set)')}"
    return ConfigError(
        "Spark's classes could not be kept in a file, or not used from it", where=where, why=why, remedy=remedy
    )
