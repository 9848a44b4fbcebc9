"""Cut a property off from what it decides, to see that the test of its effect notices (``scripts/mutate --settings``).

Wherever the product reads the property it gets the default; a test that reads it itself gets what was given.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import connector
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.field import Field, Lookup

VARIABLE = "MYSQL_CDC_CUT_SETTING"
"""Name of the property in the environment of pytest."""
_TESTS = str(Path(__file__).resolve().parents[1])


def cut_setting(name: str) -> None:
    """Cut a property, or all properties of a family that is named by its prefix."""
    if name in F.BY_NAME:
        for owner in (ConnectorConfig, Lookup):
            _cut_reads(owner, F.BY_NAME[name])
    read_as_text = (F.CONVERTERS, F.TRANSFORMS, F.PREDICATES, F.TOPIC_CREATION_GROUPS)
    if name in F.BY_NAME and F.BY_NAME[name] not in read_as_text:
        return
    read = connector.read_properties.read_properties

    def without(given: Mapping[str, object], *more: Any) -> Any:
        listed = str(given.get(name, "")).split(",") if name == F.CONVERTERS.name else []
        prefixes = (name, *(f"{each.strip()}." for each in listed))
        dropped = {n for n in given if n == name or (n.startswith(prefixes) and n not in F.BY_NAME)}
        return read({n: text for n, text in given.items() if n not in dropped}, *more)

    connector.read_properties.read_properties = without


def _cut_reads(owner: Any, cut: Field[Any]) -> None:
    get, is_set = owner.__getitem__, owner.is_set

    def read(settings: Any, declared: Field[Any]) -> Any:
        if declared.name != cut.name or sys._getframe(1).f_code.co_filename.startswith(_TESTS):
            return get(settings, declared)
        values = settings.values if isinstance(settings, ConnectorConfig) else settings._values
        left = Lookup({name: value for name, value in values.items() if name != cut.name})
        return cut.default if cut.derive is None else cut.derive(left)

    owner.__getitem__ = read
    owner.is_set = lambda settings, declared: declared.name != cut.name and is_set(settings, declared)
