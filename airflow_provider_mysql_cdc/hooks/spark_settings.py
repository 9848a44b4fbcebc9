"""Spark's settings: of the cluster and the connection, defaults of this provider, and those that hold secrets.

Spark settings that hold secrets: passed in an anonymous properties file, not among a program's arguments.

Every account of a host may read arguments (``ps``). The anonymous file is readable only for accounts that may also read
the memory of spark-submit, and it is gone when spark-submit ends.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

# The JVM only starts Python workers and keeps counters: a serial collector and the first compiler stage start fastest.
# Without a limit the young generation grows to a sixth of the initial heap (1/64 of the memory) before a collection.
DEFAULT_CONF = {
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MaxNewSize=32m",
    # A speculative second copy of a writer would fence the first one.
    "spark.speculation": "false",
    # Each driver has a web page on a port of its own; beyond 16 on a host Spark's JVM would end without an error.
    "spark.port.maxRetries": "200",
}
CLUSTER_WINS = ("spark.port.maxRetries",)
"""Defaults that the cluster's own settings override."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# One JVM has one collector: it refuses to start with two (-XX:+UseG1GC and -XX:+UseSerialGC).
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC")
# Options on the command line win over the environment and over those that Spark puts before them, so our limit would
# silently replace the user's; with a ratio (NewRatio), too, our limit would cap the young generation.
_YOUNG_GENERATION_SIZE = re.compile(r"-Xmn\S+|-XX:(?:MaxNewSize|NewSize|NewRatio)=\S+")
_OVERRIDABLE_OPTIONS = (_COLLECTOR, _YOUNG_GENERATION_SIZE)
_DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
# Variables whose options reach the driver's JVM as well: org.apache.spark.launcher.SparkSubmitCommandBuilder, and the
# JVM itself.
_JAVA_OPTION_VARIABLES = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
_PROPERTY_LINE = re.compile(r"\s*([^\s=:]+)\s*[\s=:]\s*(.*?)\s*$")


def cluster_defaults(env: Mapping[str, str], properties_file: str | None = None) -> dict[str, str]:
    """Return the settings that spark-submit reads by itself: the properties file, else ``spark-defaults.conf``.

    Source: org.apache.spark.deploy.SparkSubmitArguments.mergeDefaultSparkProperties (4.x): a given
    properties file replaces spark-defaults.conf.

    Args:
        env: The environment of spark-submit.
        properties_file: The job's properties file.
    """
    folder = env.get("SPARK_CONF_DIR") or f"{env.get('SPARK_HOME', '')}/conf"
    try:
        text = Path(properties_file or f"{folder}/spark-defaults.conf").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {match[1]: match[2] for line in _logical_lines(text) if (match := _PROPERTY_LINE.match(line))}


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines of a properties file, without comments; a backslash at the end continues a line.

    Source: java.util.Properties.load; a comment is never continued.
    """
    logical_line = ""
    for line in text.splitlines():
        if not logical_line and line.lstrip().startswith(("#", "!")):
            continue
        logical_line += line.lstrip() if logical_line else line
        if logical_line.endswith("\\"):
            logical_line = logical_line[:-1]
            continue
        yield logical_line
        logical_line = ""
    if logical_line:
        yield logical_line


def connection_conf(extra: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the Spark configuration in a connection's extra (``conf``: an object, or its JSON text).

    Args:
        extra: The connection's extra.
        where: Names the connection in the error.

    Raises:
        ConfigError: It is not an object.
    """
    raw_conf = extra.get("conf") or {}
    try:
        parsed_conf = json.loads(raw_conf) if isinstance(raw_conf, str) else raw_conf
    except ValueError:
        parsed_conf = None
    if not isinstance(parsed_conf, dict):
        raise ConfigError(
            "conf in the extra of the Spark connection is not a JSON object",
            where=where,
            remedy='write it as {"conf": {"spark.pyspark.python": "/opt/env/bin/python"}}',
        )
    # Spark writes booleans in lower case.
    return {n: str(v).lower() if isinstance(v, bool) else v for n, v in parsed_conf.items() if v is not None}


def with_defaults(
    defaults: Mapping[str, Any],
    *,
    cluster: Mapping[str, Any],
    requested: Mapping[str, Any],
    env: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the configuration to submit: the requested settings, and this provider's defaults.

    Args:
        defaults: This provider's defaults.
        cluster: Settings that spark-submit reads by itself.
        requested: Settings of the job and its connection; they win.
        env: The environment of spark-submit.
    """
    merged = {
        **defaults,
        **{name: cluster[name] for name in CLUSTER_WINS if name in defaults and name in cluster},
        **requested,
    }
    if JAVA_OPTIONS in defaults and JAVA_OPTIONS not in requested:
        cluster_options = str(cluster.get(JAVA_OPTIONS) or "")
        other_options = [{**cluster, **requested}.get(_DEFAULT_JAVA_OPTIONS), *map(env.get, _JAVA_OPTION_VARIABLES)]
        all_options = " ".join(str(options or "") for options in (cluster_options, *other_options))
        chosen = [kind for kind in _OVERRIDABLE_OPTIONS if kind.search(all_options)]
        added = [o for o in str(defaults[JAVA_OPTIONS]).split() if not any(kind.fullmatch(o) for kind in chosen)]
        # Of two JVM options the later one wins, so the cluster's come last.
        merged[JAVA_OPTIONS] = " ".join([*added, cluster_options]).strip()
    return merged


# Source: the default of spark.redaction.regex (4.3); Spark redacts matching settings in its web page and event logs.
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
# These contain names of Kubernetes Secrets and no secret; source: "Running Spark on Kubernetes" (4.3).
_SECRET_REFERENCE = re.compile(r"spark\.kubernetes\.(driver|executor)\.(secrets|secretKeyRef)\.")
_PROPERTIES_FILE_OPTION, _CONF_OPTION = "--properties-file", "--conf"


def holds_secret(name: str) -> bool:
    """Return whether Spark redacts the value of a setting.

    Args:
        name: The setting's name.
    """
    return _SECRET.search(name) is not None and _SECRET_REFERENCE.match(name) is None


class SecretSettings:
    """An anonymous file that spark-submit inherits, for the settings that hold secrets.

    Args:
        fd: Its file descriptor; None on systems without anonymous files, where the arguments are not changed.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    @property
    def fds(self) -> tuple[int, ...]:
        """Return the descriptors that spark-submit must inherit."""
        return () if self._fd is None else (self._fd,)

    def move_secrets(self, arguments: Sequence[str]) -> list[str]:
        """Move the settings that hold secrets into the file and return the remaining arguments of spark-submit.

        Source: org.apache.spark.deploy.SparkSubmitArguments (4.0 to 4.3): --properties-file replaces
        spark-defaults.conf, unless --load-spark-defaults is given as well; --conf wins over both.

        Args:
            arguments: With ``--conf`` and ``NAME=VALUE``, and at most one ``--properties-file``.

        Raises:
            ConfigError: The task's properties file cannot be read.
        """
        conf_indexes = [i for i, word in enumerate(arguments) if word == _CONF_OPTION]
        secret_indexes = [i for i in conf_indexes if holds_secret(arguments[i + 1].partition("=")[0])]
        if self._fd is None or not secret_indexes:
            return list(arguments)
        remaining = [
            word for i, word in enumerate(arguments) if i not in secret_indexes and i - 1 not in secret_indexes
        ]
        lines = [_property_line(*arguments[i + 1].split("=", 1)) for i in secret_indexes]
        user_properties = (
            _read_properties_file(remaining[remaining.index(_PROPERTIES_FILE_OPTION) + 1])
            if _PROPERTIES_FILE_OPTION in remaining
            else ""
        )
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, "\n".join([user_properties, *lines, ""]).encode(), 0)
        path = f"/proc/self/fd/{self._fd}"
        if _PROPERTIES_FILE_OPTION not in remaining:
            return [*remaining, _PROPERTIES_FILE_OPTION, path, "--load-spark-defaults"]
        remaining[remaining.index(_PROPERTIES_FILE_OPTION) + 1] = path
        return remaining


@contextmanager
def secret_settings() -> Iterator[SecretSettings]:
    """Create the file and close it here afterwards; spark-submit keeps it open until it ends."""
    fd = os.memfd_create("mysql-cdc-settings") if hasattr(os, "memfd_create") else None
    try:
        yield SecretSettings(fd)
    finally:
        if fd is not None:
            os.close(fd)


def _property_line(name: str, value: str) -> str:
    """Return a line of a properties file; source: java.util.Properties.load."""
    plain = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return re.sub(r"([=:#!\s])", r"\\\1", name) + "=" + re.sub(r"^( )", r"\\\1", plain)


def _read_properties_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            "Spark's properties file cannot be read",
            where=path,
            why=str(error),
            remedy="set properties_file to a file that the Airflow worker can read",
        ) from error
