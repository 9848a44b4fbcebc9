"""Spark settings that hold secrets: in a properties file without a name, and not among a program's arguments.

Every account of a host may read arguments (``ps``). Whoever may read the anonymous file may read the memory of
spark-submit too, and it ends with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

# Source: spark.redaction.regex, its default (4.3); Spark hides what it matches in its web page and event logs.
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
# These name Secrets of Kubernetes and hold none; source: "Running Spark on Kubernetes" (4.3).
_NAMES_ONLY = re.compile(r"spark\.kubernetes\.(driver|executor)\.(secrets|secretKeyRef)\.")
_FILE, _CONF = "--properties-file", "--conf"


def holds_secret(name: str) -> bool:
    """Return whether Spark hides the value of a setting.

    Args:
        name: The setting's name.
    """
    return _SECRET.search(name) is not None and _NAMES_ONLY.match(name) is None


class SecretSettings:
    """An anonymous file that spark-submit inherits, for the settings that hold secrets.

    Args:
        fd: Its file descriptor; None on systems without anonymous files, where the arguments stay as they are.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    @property
    def fds(self) -> tuple[int, ...]:
        """Return the descriptors that spark-submit must inherit."""
        return () if self._fd is None else (self._fd,)

    def moved(self, arguments: Sequence[str]) -> list[str]:
        """Return arguments of spark-submit without the settings that hold secrets, which the file has now.

        Source: org.apache.spark.deploy.SparkSubmitArguments (4.0 to 4.3): a properties file that is named takes the
        place of spark-defaults.conf, unless --load-spark-defaults stands beside it; --conf wins over both.

        Args:
            arguments: With ``--conf`` and ``NAME=VALUE``, and at most one ``--properties-file``.

        Raises:
            ConfigError: The properties file that the task names cannot be read.
        """
        settings = [i for i, word in enumerate(arguments) if word == _CONF]
        secret = [i for i in settings if holds_secret(arguments[i + 1].partition("=")[0])]
        if self._fd is None or not secret:
            return list(arguments)
        left = [word for i, word in enumerate(arguments) if i not in secret and i - 1 not in secret]
        lines = [_line(*arguments[i + 1].split("=", 1)) for i in secret]
        named = _text(left[left.index(_FILE) + 1]) if _FILE in left else ""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, "\n".join([named, *lines, ""]).encode(), 0)
        path = f"/proc/self/fd/{self._fd}"
        if _FILE not in left:
            return [*left, _FILE, path, "--load-spark-defaults"]
        left[left.index(_FILE) + 1] = path
        return left


@contextmanager
def secret_settings() -> Iterator[SecretSettings]:
    """Make the file, and forget it here; spark-submit keeps it as long as it lives."""
    fd = os.memfd_create("mysql-cdc-settings") if hasattr(os, "memfd_create") else None
    try:
        yield SecretSettings(fd)
    finally:
        if fd is not None:
            os.close(fd)


def _line(name: str, value: str) -> str:
    """Return a line of a properties file; source: java.util.Properties.load."""
    plain = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return re.sub(r"([=:#!\s])", r"\\\1", name) + "=" + re.sub(r"^( )", r"\\\1", plain)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            "the properties file of Spark cannot be read",
            where=path,
            why=str(error),
            remedy="name a file that the Airflow worker can read in properties_file",
        ) from error
