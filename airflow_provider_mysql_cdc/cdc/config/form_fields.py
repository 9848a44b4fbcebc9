"""The declared properties as fields of Airflow's connection form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.field import Field


def json_schema_of(declared: Field[Any]) -> dict[str, Any]:
    """Return one property's JSON schema: ``type``, and ``format``, ``enum`` and ``default`` where they apply."""
    default = declared.default
    kind = "boolean" if isinstance(default, bool) else "integer" if isinstance(default, int) else "string"
    schema: dict[str, Any] = {"type": kind if declared.required else [kind, "null"]}
    if declared.secret:
        schema["format"] = "password"
    if declared.enum is not None:
        schema["enum"] = [*declared.enum, *([] if declared.required else [None])]
    if not declared.required and not declared.secret and declared.derive is None and default is not None:
        schema["default"] = default if kind != "string" else declared.default_text()
    return schema


def form_fields(declared: Iterable[Field[Any]] | None = None) -> list[dict[str, Any]]:
    """Return fields for Airflow's connection form: ``name``, ``label``, ``description`` and ``schema``.

    Args:
        declared: The properties; None for those marked for the form.
    """
    chosen = [f for f in F.ALL if f.in_connection_form] if declared is None else list(declared)
    return [
        {"name": f.name, "label": label(f), "description": f.doc, "schema": json_schema_of(f)}
        for f in sorted(chosen, key=lambda f: not f.required)
    ]


def label(declared: Field[Any]) -> str:
    """Return the name for people: ``topic.prefix`` is ``Topic prefix (topic.prefix)``, marked when it is required."""
    text = declared.name.replace(".", " ")
    return f"{text[0].upper()}{text[1:]} ({declared.name}{', required' if declared.required else ''})"
