"""What a plan remembers of the configuration, so that what was begun under one is not finished under another.

A batch is written by several writers, each in transactions of its own. After a crash some have gone on further than
others; were keys, filters or topics to be others in the retry, a row could move from a writer that has not written it
yet to one that has passed it already, and be lost, or the other way round and come twice.

Everything decides that is not declared otherwise (``Field.pin_scope``, ``FAMILY_PIN_SCOPES``). Values at their
default are left out, so a plan stays small; a value that is long or secret is remembered as a digest.

The version of the package is not pinned: an update is the way out of a batch that an error of the package stopped.
``RECORD_FORMAT_VERSION`` is; it is raised with a release that gives an event another key, another owner or another
number.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.config import column_rules, kafka, property_families, undeclared_properties
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.column_rules import LoadedConverter
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.field import Field, Lookup, PinScope, display_text
from airflow_provider_mysql_cdc.cdc.config.property_names import hide_salt, redact
from airflow_provider_mysql_cdc.cdc.config.transforms import is_of_chain

RECORD_FORMAT_VERSION = "1"
"""Raise it when the same configuration and binlog give other keys, partitions, owners or event numbers than before."""
RECORD_FORMAT_LABEL = "form of the records (version of airflow-provider-mysql-cdc)"
SOURCE_TEXT_PREFIX = "source text of "

FAMILY_PIN_SCOPES: dict[str, PinScope] = {
    property_families.DRIVER_PREFIX: PinScope.NOTHING,
    property_families.REPLICA_PREFIX: PinScope.NOTHING,
    # Settings of topics yet to be created; how many partitions they get is a property of its own.
    property_families.TOPIC_CREATION_PREFIX: PinScope.NOTHING,
    property_families.PREFIX: PinScope.EVENTS,
    property_families.SELECT_OVERRIDES_PREFIX: PinScope.SNAPSHOT,
    **dict.fromkeys(column_rules.PREFIXES, PinScope.EVENTS),
    **dict.fromkeys(kafka.PREFIXES, PinScope.NOTHING),
}
"""What the members of each family decide."""

_CHAIN_PIN = "=a chain that records pass"
"""Events are counted before a chain: one that is mended may go on where a batch stopped."""
_MAX_PLAIN_LENGTH = 120
_PBKDF2_ITERATIONS = 100_000


def pin_scope(name: str) -> PinScope:
    """Return what a property decides, by its name as ``ConnectorConfig.texts`` has it."""
    if (declared := F.BY_NAME.get(name)) is not None:
        return declared.pin_scope
    prefix = property_families.prefix_of(name)
    # A known property that is refused is accepted where it asks for what happens anyway.
    if name in undeclared_properties.NO_EFFECT or (
        prefix is None and undeclared_properties.refused_property(name) is not None
    ):
        return PinScope.NOTHING
    # Settings of converters and transforms belong to no family.
    return PinScope.EVENTS if prefix is None else FAMILY_PIN_SCOPES[prefix]


def property_pins(cfg: ConnectorConfig, *, snapshot: bool) -> dict[str, str]:
    """Return what decides the records of a batch or of a snapshot, by property.

    Args:
        cfg: The connector's configuration.
        snapshot: Whether it is for a snapshot.

    Returns:
        Property name (a salt in it hidden) to ``=value``, or to ``#digest`` where the value is long or secret.
    """
    scopes = {PinScope.EVENTS, PinScope.SNAPSHOT} if snapshot else {PinScope.EVENTS}
    pinned: dict[str, str] = {RECORD_FORMAT_LABEL: f"={RECORD_FORMAT_VERSION}"}
    rules = 0
    for name, configured in cfg.texts.items():
        if pin_scope(name) not in scopes:
            continue
        if cfg.chain is not None and is_of_chain(name):
            continue
        text = configured
        if (declared := F.BY_NAME.get(name)) is not None:
            text = _value_text(cfg, declared, configured)
            if text == _default_text(cfg, declared):
                continue
        elif name.startswith(column_rules.PREFIXES):
            rules += 1  # of several rules for a column the first counts
            text = f"{configured} (rule {rules})"
        label = hide_salt(name)
        pin = _encode_pin(cfg.topic_prefix, name, text, secret=label != name or redact(name, text) != text)
        pinned[label] = pinned.get(label, "") + pin
    if cfg.chain is not None:
        pinned[F.TRANSFORMS.name] = _CHAIN_PIN
    return pinned | _converter_digests(cfg)


def changed_pins(planned: Mapping[str, str], current: Mapping[str, str]) -> tuple[str, ...]:
    """Return what differs, one text for each property; nothing when ``planned`` says nothing.

    Args:
        planned: Pins of the plan; empty in a plan of a version that had none.
        current: Pins of today's configuration.
    """
    if not planned:
        return ()
    names = sorted(name for name in {*planned, *current} if planned.get(name) != current.get(name))
    # The source of a class cannot be read everywhere (only bytecode is there, or it was typed in).
    names = [name for name in names if not name.startswith(SOURCE_TEXT_PREFIX) or (name in planned and name in current)]
    return tuple(
        f"{name} (was {_describe_pin(planned.get(name))}, is {_describe_pin(current.get(name))})" for name in names
    )


def _value_text(cfg: ConnectorConfig, declared: Field[object], text: str) -> str:
    value = cfg[declared]
    return display_text(value) if _is_plain(value) else text.strip()


def _default_text(cfg: ConnectorConfig, declared: Field[object]) -> str:
    value = declared.default if declared.derive is None else declared.derive(Lookup(cfg.values))
    return display_text(value) if _is_plain(value) else ""


def _is_plain(value: object) -> bool:
    """Return whether a value has one text; that of other objects may hold their address in this process."""
    if isinstance(value, (tuple, frozenset)):
        return all(isinstance(member, (int, str)) for member in value)
    return isinstance(value, (bool, int, str))


def _encode_pin(prefix: str, name: str, text: str, *, secret: bool) -> str:
    if secret:
        return "#" + _slow_digest(prefix, f"{name}={text}")
    return f"={text}" if len(text) <= _MAX_PLAIN_LENGTH else "#" + hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def _slow_digest(prefix: str, text: str) -> str:
    """Return a digest that cannot be searched for a short secret in reasonable time; the ledger is not secret."""
    return hashlib.pbkdf2_hmac("sha256", text.encode(), f"mysql-cdc.{prefix}".encode(), _PBKDF2_ITERATIONS)[:8].hex()


def _converter_digests(cfg: ConnectorConfig) -> dict[str, str]:
    """Return the digests of the modules that hold the converters of one's own, where their text can be had."""
    digests = {}
    for converter in cfg.families.columns.converters:
        if isinstance(converter, LoadedConverter) and (text := _module_text(converter.path)) is not None:
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            digests[f"{SOURCE_TEXT_PREFIX}{converter.path} ({converter.name})"] = f"#{digest}"
    return digests


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


def _describe_pin(pin: str | None) -> str:
    if pin is None:
        return "the default"
    return repr(pin[1:]) if pin.startswith("=") else "another text"
