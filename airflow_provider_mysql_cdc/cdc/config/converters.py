"""Converters named by a property: the boolean one of Debezium, and classes of one's own (TYPE-62 to TYPE-65)."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.property_names import scrub

BOOLEAN_CONVERTERS = (
    "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter",
    "io.debezium.connector.binlog.converters.TinyIntOneToBooleanConverter",
)
JAVA_PACKAGES = ("io.debezium.", "io.confluent.", "org.apache.kafka.", "java.", "javax.")
"""Packages of Java that no Python module is looked for in."""

IMPORTABLE_HINT = (
    "its module must be importable by the Airflow worker and by the Spark driver and executors "
    "(spark-submit --py-files, or installed there)"
)
_CLASS_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_REQUIRED_METHODS = ("configure", "converter_for")


class ConverterRefusedError(ValueError):
    """Say why a class cannot be used.

    Args:
        what: The reason.
        fix: What to do.
    """

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


@dataclass(frozen=True, slots=True, eq=False)
class LoadedConverter:
    """Hold a converter of one's own.

    Args:
        name: Its name in ``converters``.
        path: ``module.Class``.
        instance: The object (``convert.custom.CustomConverter``).
    """

    name: str
    path: str
    instance: Any


def custom_classes(properties: Mapping[str, object]) -> dict[str, str]:
    """Return the paths of Python classes that converters name, by property.

    Args:
        properties: Property values by name, as given.
    """
    names = (name.strip() for name in str(properties.get("converters") or "").split(","))
    paths = {f"{name}.type": str(properties.get(f"{name}.type") or "").strip() for name in names if name}
    return {name: path for name, path in paths.items() if path and not path.startswith(JAVA_PACKAGES)}


def load_converter(name: str, settings: Mapping[str, str]) -> LoadedConverter:
    """Return a converter, made and configured.

    Args:
        name: Its name in ``converters``.
        settings: Its properties, by name without ``<name>.``; ``type`` is the path of its class.

    Raises:
        ConverterRefusedError: It cannot be used.
    """
    path = settings.get("type", "").strip()
    if not path or path.startswith(JAVA_PACKAGES):
        what = f"is not a converter that exists here; there is {BOOLEAN_CONVERTERS[0]}" if path else "is missing"
        fix = "Remove the converter, or name that one, or one written in Python (docs/custom-converters.md)"
        raise ConverterRefusedError(what, fix)
    converter_class = _load_class(path)
    try:
        instance = converter_class()
        instance.configure({k: v for k, v in settings.items() if k != "type"})
    except Exception as error:
        raise ConverterRefusedError(
            f"the converter cannot be configured: {type(error).__name__}: {scrub(str(error), settings)}",
            f"Correct the {name}.* properties, or the converter",
        ) from None
    return LoadedConverter(name, path, instance)


def _load_class(path: str) -> type[Any]:
    fix = f"Name a class as package.module.Class; {IMPORTABLE_HINT}"
    if not _CLASS_PATH.fullmatch(path):
        raise ConverterRefusedError("is not a dotted path of a Python class", fix)
    module, _, name = path.rpartition(".")
    try:
        candidate = getattr(importlib.import_module(module), name, None)
    except Exception as error:
        why = f"module {module} cannot be imported: {type(error).__name__}: {error}"
        raise ConverterRefusedError(why, f"{fix}; a class of Java cannot be used: write it in Python") from error
    if candidate is None:
        raise ConverterRefusedError(f"module {module} has no class {name}", fix)
    missing = [m for m in _REQUIRED_METHODS if not callable(getattr(candidate, m, None))]
    if not isinstance(candidate, type) or missing:
        lacks = f": it lacks {' and '.join(missing)}" if missing else ""
        raise ConverterRefusedError(f"is not a class of a converter{lacks}", f"See docs/custom-converters.md; {fix}")
    return candidate
