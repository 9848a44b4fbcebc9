"""``mysql-cdc spark-classes``: store the classes of a Spark driver in an archive that its JVM maps when it starts.

With the archive a JVM does not read, verify and link some 10,000 classes in each start. It uses the archive only when
its classpath begins with the jars from which the archive was made, without a folder that contains files; otherwise it
starts as without the archive. Source: JEP 350 and the manual page of ``java``, -XX:ArchiveClassesAtExit and
-XX:SharedArchiveFile.
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
# Folders that Spark's launcher puts after its jars; a classpath may have additional entries at its end.
_CLASSPATH_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_JOB_TIMEOUT_S = 600
_ERROR_LINES = 5
"""Number of last lines of a job's output that an error shows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options.

    Args:
        parser: Takes them.
    """
    default = Path("spark-classes.jsa")
    parser.add_argument("--output", type=Path, default=default, help="file to write (%(default)s)")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Write the archive and print how to use it; return the exit code.

    Args:
        arguments: The parsed command line.
        out: Where the text is printed.

    Raises:
        ConfigError: See ``archive_classes``.
    """
    path = arguments.output.resolve()
    archive_classes(path)
    conf = {"conf": {"spark.driver.defaultJavaOptions": f"-XX:SharedArchiveFile={path}"}}
    print(f"to use it, put this into the extra of the Spark connection: {json.dumps(conf)}", file=out)
    return 0


def archive_classes(path: Path) -> None:
    """Run an empty job on this host that stores its classes in an archive, and a second one that must start from it.

    Args:
        path: The archive; it is replaced once the second job has succeeded.

    Raises:
        ConfigError: Spark or Java is missing, or the JVM cannot create the archive or start from it.
    """
    env = _env()
    _require_no_settings(env)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            archive = Path(folder) / path.name
            _submit(env, f"-XX:ArchiveClassesAtExit={archive}")
            if not archive.is_file():
                raise _archive_error(
                    env, "the JVM created no archive", "use Java 17 or newer, with the archive of its own classes"
                )
            # Without "on" a JVM that cannot map the archive starts without it.
            _submit(env, f"-XX:SharedArchiveFile={archive} -Xshare:on")
            archive.replace(path)
    except OSError as error:
        raise ConfigError(
            "the archive cannot be written", where=str(path), why=str(error), remedy="use another path for --output"
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
            "the classes of this Spark cannot be stored in an archive",
            where=str(folder),
            why="this folder contains files and is on the driver's classpath, and then a JVM creates no archive",
            remedy="run jobs without an archive; or move the settings into a file, pass it to the operators as "
            "properties_file, and set SPARK_CONF_DIR to an empty folder, here and for the tasks",
        )


def _submit(env: Mapping[str, str], option: str) -> None:
    from airflow_provider_mysql_cdc.hooks.spark_settings import DEFAULT_CONF, JAVA_OPTIONS, with_defaults

    conf = with_defaults(DEFAULT_CONF, cluster={}, requested={"spark.ui.enabled": "false"}, env=env)
    # The JVM logs a warning for each class that it cannot store.
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
            env, " | ".join(lines), "run spark-submit by hand to find the cause; jobs run without the archive as before"
        )


def _archive_error(env: Mapping[str, str], why: str, remedy: str) -> ConfigError:
    where = f"SPARK_HOME={env.get('SPARK_HOME', '')}, JAVA_HOME={env.get('JAVA_HOME', '(not set)')}"
    return ConfigError(
        "Spark's classes could not be stored in an archive, or the archive could not be used",
        where=where,
        why=why,
        remedy=remedy,
    )
