"""What a cluster's administrator and the Spark connection have set, and how our own defaults are added to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

# The JVM only starts Python workers and keeps counters: a serial collector and the first compiler stage start fastest,
# and without a limit for new objects it fills a sixth of its first heap, 1/64 of the machine, before it looks for room.
DEFAULT_CONF = {
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MaxNewSize=32m",
    # A second copy of a writer fences the first one.
    "spark.speculation": "false",
    # Each driver has a web page on a port of its own; beyond 16 on a host Spark's JVM would end without a word.
    "spark.port.maxRetries": "200",
}
CLUSTER_WINS = ("spark.port.maxRetries",)
"""Defaults that give way to the cluster's own."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# One JVM has one collector: it refuses to start with two (-XX:+UseG1GC and -XX:+UseSerialGC).
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC")
# What stands on the command line wins over the environment and over what Spark puts before it, so a limit of ours would
# take the place of theirs without a word; by a ratio, too, new objects would have no more room than our limit.
_YOUNG_GENERATION_SIZE = re.compile(r"-Xmn\S+|-XX:(?:MaxNewSize|NewSize|NewRatio)=\S+")
_OVERRIDABLE_OPTIONS = (_COLLECTOR, _YOUNG_GENERATION_SIZE)
_DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
# Variables whose options reach the driver's JVM as well: org.apache.spark.launcher.SparkSubmitCommandBuilder, and the
# JVM itself.
_JAVA_OPTION_VARIABLES = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
_PROPERTY_LINE = re.compile(r"\s*([^\s=:]+)\s*[\s=:]\s*(.*?)\s*$")


def cluster_defaults(env: Mapping[str, str], properties_file: str | None = None) -> dict[str, str]:
    """Return what spark-submit reads by itself: the properties file, else ``spark-defaults.conf``.

    Source: org.apache.spark.deploy.SparkSubmitArguments.mergeDefaultSparkProperties (4.x): a properties file that is
    named replaces spark-defaults.conf.

    Args:
        env: The environment of spark-submit.
        properties_file: The file that the job names.
    """
    folder = env.get("SPARK_CONF_DIR") or f"{env.get('SPARK_HOME', '')}/conf"
    try:
        text = Path(properties_file or f"{folder}/spark-defaults.conf").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {match[1]: match[2] for line in _logical_lines(text) if (match := _PROPERTY_LINE.match(line))}


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines of a properties file, without comments; a backslash at the end goes on in the next line.

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
        where: Names the connection in messages.

    Raises:
        ConfigError: It is no object.
    """
    raw_conf = extra.get("conf") or {}
    try:
        parsed_conf = json.loads(raw_conf) if isinstance(raw_conf, str) else raw_conf
    except ValueError:
        parsed_conf = None
    if not isinstance(parsed_conf, dict):
        raise ConfigError(
            "conf in the extra of the Spark connection is not an object",
            where=where,
            remedy='write it as {"conf": {"spark.pyspark.python": "/opt/env/bin/python"}}',
        )
    # As Spark writes them.
    return {n: str(v).lower() if isinstance(v, bool) else v for n, v in parsed_conf.items() if v is not None}


def with_defaults(
    defaults: Mapping[str, Any],
    *,
    cluster: Mapping[str, Any],
    requested: Mapping[str, Any],
    env: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the configuration to submit: what was asked for, and our defaults added to what the cluster has.

    Args:
        defaults: Our defaults.
        cluster: What spark-submit reads by itself.
        requested: What the job and its connection say; it wins.
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
        # What stands later wins in a JVM: theirs.
        merged[JAVA_OPTIONS] = " ".join([*added, cluster_options]).strip()
    return merged
