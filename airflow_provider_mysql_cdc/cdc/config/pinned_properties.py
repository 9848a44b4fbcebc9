"""What a plan remembers of the configuration, so that what was begun under one is not finished under another.

A batch is written by several writers, each in transactions of its own. After a crash some have gone on further than
others; were keys, filters or topics to be others in the retry, a row could move from a writer that has not written it
yet to one that has passed it already, and be lost, or the other way round and come twice.

Everything decides that is not declared otherwise (``Field.decides``, ``FAMILY_DECIDES``). Values at their default are
left out, so a plan stays small; a value that is long or secret is remembered as a digest.

The version of the package is not pinned: an update is the way out of a batch that an error of the package stopped.
``RECORDS_FORM`` is; it is raised with a release that gives an event another key, another owner or another number.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.config import column_rules, kafka
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config import property_families as families
from airflow_provider_mysql_cdc.cdc.config import undeclared_properties as known
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.converters import LoadedConverter
from airflow_provider_mysql_cdc.cdc.config.field import Decides, Field, Lookup, plain
from airflow_provider_mysql_cdc.cdc.config.property_names import hide_salt, shown

RECORDS_FORM = "1"
"""Raise it when the same configuration and binlog give other keys, partitions, owners or event numbers than before."""
FORM = "form of the records (version of airflow-provider-mysql-cdc)"
SOURCE_OF = "source text of "

FAMILY_DECIDES: dict[str, Decides] = {
    families.DRIVER: Decides.NOTHING,
    # Settings of topics yet to be created; how many partitions they get is a property of its own.
    families.TOPIC_CREATION: Decides.NOTHING,
    families.SELECT_OVERRIDES: Decides.SNAPSHOT,
    **dict.fromkeys(column_rules.PREFIXES, Decides.EVENTS),
    **dict.fromkeys(kafka.PREFIXES, Decides.NOTHING),
}
"""What the members of each family decide."""

_SHOWN = 120
_ROUNDS = 100_000


def decides(name: str) -> Decides:
    """Return what a property decides, by its name as ``ConnectorConfig.texts`` has it."""
    if (declared := F.BY_NAME.get(name)) is not None:
        return declared.decides
    prefix = families.prefix_of(name)
    # A known property that is refused is accepted where it asks for what happens anyway.
    if name in known.NO_EFFECT or (prefix is None and known.refused(name) is not None):
        return Decides.NOTHING
    # Settings of converters and transforms belong to no family.
    return Decides.EVENTS if prefix is None else FAMILY_DECIDES[prefix]


def pins(cfg: ConnectorConfig, *, snapshot: bool) -> dict[str, str]:
    """Return what decides the records of a batch or of a snapshot, by property.

    Args:
        cfg: The connector's configuration.
        snapshot: Whether it is for a snapshot.

    Returns:
        Property name (a salt in it hidden) to ``=value``, or to ``#digest`` where the value is long or secret.
    """
    wanted = {Decides.EVENTS, Decides.SNAPSHOT} if snapshot else {Decides.EVENTS}
    found: dict[str, str] = {FORM: f"={RECORDS_FORM}"}
    rules = 0
    for name, given in cfg.texts.items():
        if decides(name) not in wanted:
            continue
        text = given
        if (declared := F.BY_NAME.get(name)) is not None:
            text = _value(cfg, declared, given)
            if text == _default(cfg, declared):
                continue
        elif name.startswith(column_rules.PREFIXES):
            rules += 1  # of several rules for a column the first counts
            text = f"{given} (rule {rules})"
        label = hide_salt(name)
        pin = _pin(cfg.topic_prefix, name, text, secret=label != name or shown(name, text) != text)
        found[label] = found.get(label, "") + pin
    return found | _sources(cfg)


def changes(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return what differs, one text for each property; nothing when ``then`` says nothing.

    Args:
        then: Pins of the plan; empty in a plan of a version that had none.
        now: Pins of today's configuration.
    """
    if not then:
        return ()
    names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    # The source of a class cannot be read everywhere (only bytecode is there, or it was typed in).
    names = [name for name in names if not name.startswith(SOURCE_OF) or (name in then and name in now)]
    return tuple(f"{name} (was {_show(then.get(name))}, is {_show(now.get(name))})" for name in names)


def _value(cfg: ConnectorConfig, declared: Field[object], text: str) -> str:
    value = cfg[declared]
    return plain(value) if _is_plain(value) else text.strip()


def _default(cfg: ConnectorConfig, declared: Field[object]) -> str:
    value = declared.default if declared.derive is None else declared.derive(Lookup(cfg.values))
    return plain(value) if _is_plain(value) else ""


def _is_plain(value: object) -> bool:
    """Return whether a value has one text; that of other objects may hold their address in this process."""
    if isinstance(value, (tuple, frozenset)):
        return all(isinstance(member, (int, str)) for member in value)
    return isinstance(value, (bool, int, str))


def _pin(prefix: str, name: str, text: str, *, secret: bool) -> str:
    if secret:
        return "#" + _slow_digest(prefix, f"{name}={text}")
    return f"={text}" if len(text) <= _SHOWN else "#" + hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def _slow_digest(prefix: str, text: str) -> str:
    """Return a digest that cannot be searched for a short secret in reasonable time; the ledger is not secret."""
    return hashlib.pbkdf2_hmac("sha256", text.encode(), f"mysql-cdc.{prefix}".encode(), _ROUNDS)[:8].hex()


def _sources(cfg: ConnectorConfig) -> dict[str, str]:
    """Return the digests of the modules that hold the converters of one's own, where their text can be had."""
    found = {}
    for converter in cfg.families.columns.converters:
        if isinstance(converter, LoadedConverter) and (text := _module_text(converter.path)) is not None:
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            found[f"{SOURCE_OF}{converter.path} ({converter.name})"] = f"#{digest}"
    return found


def _module_text(path: str) -> str | None:
    module = sys.modules.get(path.rpartition(".")[0])
    if module is None:
        return None
    try:
        return Path(str(module.__file__)).read_text(encoding="utf-8")
    except (OSError, ValueError):
        pass
    try:
        return inspect.getsource(module)  # from an archive of spark-submit --py-files
    except (OSError, TypeError):
        return None


def _show(pin: str | None) -> str:
    if pin is None:
        return "the default"
    return repr(pin[1:]) if pin.startswith("=") else "another text"
