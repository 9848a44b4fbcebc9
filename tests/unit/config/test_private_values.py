"""No problem or note shows a value of a connection, whatever its property is called."""

from __future__ import annotations

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import kafka, undeclared_properties
from airflow_provider_mysql_cdc.cdc.config import property_families as families
from airflow_provider_mysql_cdc.cdc.config.property_sources import connection_source, load_config, params_source
from airflow_provider_mysql_cdc.cdc.config.read_properties import ALIASES
from airflow_provider_mysql_cdc.cdc.errors import ConfigError

MARK = "Zx9MarkedKey"
STANDARD = {"host": "h", "login": "u", "password": "p"}
BASE = {"topic.prefix": "shop", "kafka.bootstrap.servers": "k:1"}
LISTS_OF_NAMES = {"converters", "transforms", "predicates", "post.processors", "snapshot.select.statement.overrides"}
"""Their values are parts of names of properties, and names are shown."""
NAMES = [
    *(f.name for f in F.ALL),
    *ALIASES,
    *undeclared_properties.NO_EFFECT,
    *(r.name.replace("*", "x") for r in undeclared_properties.REFUSED_PROPERTIES),
    *(f"kafka.{name}" for name in (*kafka.JAVA_REFUSED, *kafka.JAVA_RENAMED, *kafka.FIXED_SETTINGS)),
    *(f"{prefix}{name}" for prefix in kafka.PREFIXES for name in ("security.protocol", "sasl.jaas.config", "x.y")),
    *(f"{families.DRIVER_PREFIX}{option}" for option in families.DRIVER_OPTIONS),
    *("column.mask.with.x.chars", "column.mask.hash.X.with.salt.s", "topic.creation.default.cleanup.polcy"),
    *("transforms.x.type", "isbn.type", "azure_storage_key", "AZURE.KEY", "database.x"),
]
VALUES = (MARK, f"a:1,{MARK}", f"{MARK} required username='{MARK}' password={MARK};", f"db.t:a;{MARK}")


def text_of(**extra: str) -> str:
    """Return the error, or the notes, of a connection with these members in its extra."""
    try:
        return str(load_config([connection_source("c", STANDARD, {**BASE, **extra})]).notes)
    except ConfigError as error:
        return str(error)


@for_each("value", VALUES)
def test_no_value_of_a_connection_is_shown(value: str) -> None:
    texts = {name: text_of(**{name: value}) for name in sorted(set(NAMES) - LISTS_OF_NAMES)}
    assert {name: text for name, text in texts.items() if MARK in text} == {}
    assert sum("A retry will not help" in text for text in texts.values()) > 100


def test_nor_in_the_list_of_several_problems() -> None:
    text = text_of(**{"snapshot.mode": MARK, "azure_key": MARK, "database.history.skip": MARK})
    assert "The configuration has 3 problems" in text and "azure_key" in text and "snapshot.mode" in text
    assert MARK not in text


def test_the_meaning_of_an_error_stays() -> None:
    text = text_of(**{"snapshot.mode": "initail"})
    assert "initial, " in text and "Write initial, if that is meant" in text and "initail" not in text


def test_what_the_task_says_itself_is_shown() -> None:
    with pytest.raises(ConfigError, match=MARK):
        load_config([params_source({"snapshot.mode": MARK}), connection_source("c", STANDARD, BASE)])


def test_the_class_of_a_refused_transform_is_shown() -> None:
    """It is no secret, and the error is about it; whatever else a connection says there is hidden as always."""
    chain = {"transforms": "a", "transforms.a.type": "com.example.Mine"}
    with pytest.raises(ConfigError, match=r"transforms\.a\.type \(value 'com\.example\.Mine'\)"):
        load_config([connection_source("c", STANDARD, {**BASE, **chain})])
    with pytest.raises(ConfigError) as caught:
        load_config([connection_source("c", STANDARD, {**BASE, **chain, "transforms.a.type": f"no class {MARK}"})])
    assert MARK not in str(caught.value)
