"""Spark settings that hold secrets: passed in an anonymous properties file, not among a program's arguments.

Every account of a host may read arguments (``ps``). The anonymous file is readable only for accounts that may also read
the memory of spark-submit, and it is gone when spark-submit ends.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

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
