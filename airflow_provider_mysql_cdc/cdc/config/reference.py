"""Render docs/properties.md from the declarations: ``python -m airflow_provider_mysql_cdc.cdc.config.reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import (
    column_rules,
    kafka,
    property_families,
    transforms,
    undeclared_properties,
)
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.field import Field, Group, PinScope, SetBy
from airflow_provider_mysql_cdc.cdc.config.property_names import env_name, is_secret
from airflow_provider_mysql_cdc.cdc.config.property_sources import ENV_DOCUMENT
from airflow_provider_mysql_cdc.cdc.transforms import known_transforms

_HEADER = f"""# Properties

Generated from the declarations in `airflow_provider_mysql_cdc/cdc/config`; write it again with
`python -m airflow_provider_mysql_cdc.cdc.config.reference docs/properties.md`.

Names are Debezium's and Kafka Connect's where one exists, of either generation; older names are accepted and noted in
the log. Properties marked *ours* are this provider's own. A Kafka Connect JSON configuration can be used as it is.
Unknown names are refused with the nearest known one, and all problems are reported at once.

A property is looked for in this order: operator parameters, the Airflow connection (host, port, login, password; then
its extra, by property name), the environment (`{env_name("topic.prefix")}` for `topic.prefix`; `{ENV_DOCUMENT}` holds
a JSON object for the rest), the default.

A property marked *fixed inside a batch* decides which records exist, how they look or where they go. A batch or a
snapshot of which something is committed goes on under the same value only. A task that finds another value stops with
the name of the property: set it back until the batch is done, or give the batch up with DAG `mysql_cdc_reset_offset`.
The families `column.*` and the settings of converters are fixed in the same way, and so is the text of a converter's
own module. So are `transforms.*`, unless records pass a chain ([transforms.md](transforms.md)): one that cannot take a
record is mended inside the batch.

A property marked *may be set by a run* says what is captured and how; the trigger form accepts it. All others, and all
families, say where the stream goes, who connects, which code or SQL runs or which columns are hidden. They come from
connections, the environment and the text of the DAG file, unless its author lets runs set them (`run_properties` of the
operators). Secrets come from connections and the environment alone.

Values of Kafka Connect's config providers (`${{file:..}}`) are refused: keep secrets in the Airflow connection.
"""

_KAFKA_SECTION = """
| Prefix | Used for |
|---|---|
| `kafka.*` | all Kafka clients |
| `producer.override.*` | the writers; connection and security settings serve all clients |
| `admin.override.*` | topic creation |
| `schema.history.internal.producer.*` | connection and security of all clients, where no other family sets it |
| `schema.history.internal.consumer.*` | the same for topic creation and for reading the schema history |
| `signal.consumer.*` (or `signals.consumer.*`) | the consumer of signals, beside those that serve all clients |

The writers gather batches of up to 1,000,000 bytes (`batch.size`) for 10 ms (`linger.ms`), or for a second while all
records go to one partition. A commit sends what waits at once, and librdkafka takes a whole processor while a batch
that is ready has to wait for a broker. They hold 3 MB that Kafka has not confirmed (`queue.buffering.max.kbytes`):
more is worth it only where brokers take longer than some 20 ms to answer. They compress no more than Kafka Connect's
producers: a consumer may have no codec. With `kafka.compression.type=lz4` topics are several times smaller
([performance.md](performance.md) has what it costs). Where a topic's `max.message.bytes` is below a batch, the job goes
on with smaller ones.

Names behind the prefix are librdkafka's. Names of Java's clients are translated:
"""

_COLUMNS_SECTION = """### Columns

Each value is a list of regular expressions for whole names `database.table.column`, as for `column.exclude.list`.
Several such properties may stand side by side.

| Property | Meaning |
|---|---|
| `column.truncate.to.<length>.chars` | longer texts and bytes are cut; characters beyond U+FFFF count as two |
| `column.mask.with.<length>.chars` | character columns (ENUM and SET too) show so many asterisks, also for NULL |
| `column.mask.hash.<algorithm>.with.salt.<salt>` | character columns show the salted hash of Java's serialised text |
| `column.mask.hash.v2.<algorithm>.with.salt.<salt>` | the same of the text's UTF-8 bytes, to be equal elsewhere too |

A hash is cut to the length of the column. Of several rules for a column one counts, in this order: truncation, mask,
`column.propagate.source.type` and `datatype.propagate.source.type`, hash, hash v2; of two of a kind the first. Where a
mask or hash does not count for that reason, values are visible, and the log says so. Keys show columns as they are, and
so does `source.query` (`include.query`). A mask for another type of column has no effect, which the log says; use
`column.exclude.list` there. The salt is hidden wherever names of properties are shown.

Algorithms: {algorithms}.
"""


def cell(text: str) -> str:
    """Return text fit for a table cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    columns = list(header)
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield f"| {' | '.join(map(cell, row))} |"


def field_lines(declared: Field[Any]) -> Iterator[str]:
    """Yield one property's chapter."""
    yield f"### `{declared.name}`" + (" (*ours*)" if declared.provider_specific else "")
    yield ""
    if declared.pending:
        yield f"Only the default is supported yet: {declared.pending}."
        yield ""
    yield declared.doc
    yield ""
    default = declared.default_text()
    default_label = default if declared.required or declared.derive else f"`{default}`" if default else "none"
    yield f"- Default: {default_label}"
    for value, meaning in (declared.enum or {}).items():
        yield f"- `{value}`: {meaning}"
    for value, why in declared.refused.items():
        yield f"- `{value}`: not supported yet: {why}"
    if declared.aliases:
        yield "- Also read: " + ", ".join(f"`{a.name}`" for a in declared.alias_list())
    if declared.secret:
        yield "- Secret: never shown"
    if declared.set_by is SetBy.RUN:
        yield "- May be set by a run"
    if declared.pin_scope is not PinScope.NOTHING:
        yield f"- Fixed inside a {'batch' if declared.pin_scope is PinScope.EVENTS else 'snapshot'}"
    yield ""


def family_lines() -> Iterator[str]:
    """Yield the chapter on properties with a free part in their name."""
    yield "## Families"
    yield ""
    yield f"### `{property_families.TOPIC_CREATION_PREFIX}*`"
    yield ""
    yield "Any topic setting of Kafka, for topics this provider creates: `cleanup.policy`, `compression.type`, .."
    yield ""
    yield f"### `{property_families.DRIVER_PREFIX}<option>`"
    yield ""
    options = (
        (f"`{property_families.DRIVER_PREFIX}{name}`", doc)
        for name, (_, doc) in property_families.DRIVER_OPTIONS.items()
    )
    yield from table(("Option of the MySQL driver", "Meaning"), options)
    yield ""
    yield _COLUMNS_SECTION.format(algorithms=", ".join(f"`{name}`" for name in column_rules.ALGORITHMS))
    yield from transform_lines()
    yield "### Kafka clients"
    yield _KAFKA_SECTION
    yield from table(("Java", "librdkafka"), kafka_rows())
    yield ""
    yield f"Secrets, never shown: {', '.join(f'`{name}`' for name in kafka_secrets())}."
    yield ""


def transform_lines() -> Iterator[str]:
    """Yield the chapter on transforms."""
    yield "### Transforms"
    yield ""
    yield f"Settings stand under `{transforms.PREFIX}<name>.`, where `{transforms.PREFIX[:-1]}` lists the name. Regular"
    yield "expressions and replacements are Java's; letters count as they are written."
    yield ""
    for name, known in known_transforms.TRANSFORMS.items():
        if name.endswith("$Key"):
            continue
        made_by = known.made_by
        key = " and the same with `$Key`" if known.part else ""
        yield f"`{name}`{key}: {made_by.DOC}."
        yield ""
        rows = [(f"`{s}`", d.doc + (" (required)" if d.required else "")) for s, d in made_by.OPTIONS.items()]
        rows += [(f"`{s}`", f"no effect: {why}") for s, why in made_by.NO_EFFECT.items()]
        rows += [
            (f"`{s}`", f"no effect, an option of older releases: write {new}") for s, new in made_by.FORMER.items()
        ]
        if rows:
            yield from table(("Setting", "Meaning"), rows)
            yield ""
    yield from table(
        ("Predicate", "Setting", "Meaning"),
        (
            (f"`{name}`", ", ".join(f"`{s}`" for s in made_by.OPTIONS), made_by.DOC)
            for name, made_by in known_transforms.PREDICATES.items()
        ),
    )
    yield ""
    yield from table(
        ("Refused", "Why", "What to do"),
        ((f"`{name}`", why, fix) for name, (why, fix) in known_transforms.REFUSED.items()),
    )
    yield ""


def kafka_secrets() -> list[str]:
    """Return the Kafka settings whose values are secrets, in Java's and librdkafka's names."""
    java = {*kafka.JAVA_RENAMED, *kafka.JAVA_REFUSED, "sasl.jaas.config"}
    return sorted(name for name in kafka.ALL_SETTINGS | java if is_secret(name))


def kafka_rows() -> Iterator[tuple[str, str]]:
    """Yield how Java's Kafka settings are read."""
    yield "`sasl.jaas.config`", "`sasl.username` and `sasl.password` of PlainLoginModule and ScramLoginModule"
    yield "`ssl.truststore.location`", "`ssl.ca.location`, when it is PEM; Java trust stores are refused"
    yield "`ssl.keystore.location`", "the same, when it is PKCS12; PEM: `ssl.certificate.location`; JKS is refused"
    for name, (target, _) in kafka.JAVA_RENAMED.items():
        yield f"`{name}`", f"`{target}`"
    for name, why in kafka.JAVA_REFUSED.items():
        yield f"`{name}`", f"refused: {why}"
    for name, (accepted, why) in kafka.FIXED_SETTINGS.items():
        yield f"`{name}`", f"only {', '.join(f'`{a}`' for a in accepted)}: {why}" if accepted else f"refused: {why}"


def render() -> str:
    """Return the whole page."""
    lines = [_HEADER]
    for group in Group:
        lines += [f"## {group}", ""]
        for declared in (f for f in F.ALL if f.group is group):
            lines += field_lines(declared)
    lines += family_lines()
    lines += ["## Accepted without effect", ""]
    lines += table(("Property", "Why"), ((f"`{n}`", why) for n, why in undeclared_properties.NO_EFFECT.items()))
    lines += ["", "## Not supported yet", ""]
    lines += ["Refused with the reason, unless the value is one of those in the last column.", ""]
    rows = (
        (f"`{r.name}`", r.why, ", ".join(f"`{h}`" if h else "empty" for h in r.accepted_values))
        for r in undeclared_properties.REFUSED_PROPERTIES
    )
    lines += table(("Property", "Why", "Accepted"), rows)
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/properties.md").write_text(render(), encoding="utf-8")
