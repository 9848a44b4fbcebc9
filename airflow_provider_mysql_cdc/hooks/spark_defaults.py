"""Spark configuration of the cluster and of the Spark connection, and the defaults that this provider adds to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
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
