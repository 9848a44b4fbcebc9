"""``mysql-cdc changefeed``: the connector properties that are equivalent to a TiCDC changefeed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TextIO

from airflow_provider_mysql_cdc.cdc.config.changefeed import changefeed_properties
from airflow_provider_mysql_cdc.cdc.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options.

    Args:
        parser: Takes them.
    """
    parser.add_argument("--sink-uri", required=True, help="kafka://host:port/topic?protocol=avro&...")
    parser.add_argument(
        "--schema-registry", default="", metavar="URL", help="address of the schema registry, without an account"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="the changefeed's configuration file (TOML)")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the properties as JSON and return the exit code.

    Args:
        arguments: The parsed command line.
        out: Where they are printed.

    Raises:
        ConfigError: This provider has no equivalent for the changefeed, or the file cannot be read.
    """
    _require_no_account(
        arguments.schema_registry, "--schema-registry", "every user of the machine can read command lines"
    )
    try:
        text = "" if arguments.config is None else arguments.config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "the file cannot be read", where=f"--config {arguments.config}", why=str(error), remedy="correct the path"
        ) from None
    properties = changefeed_properties(arguments.sink_uri, arguments.schema_registry, text)
    _require_no_account(
        properties["schema-registry"], f"--config {arguments.config}", "the properties are printed in clear text"
    )
    print(json.dumps(properties, indent=2), file=out)
    return 0


def _require_no_account(url: str, where: str, why: str) -> None:
    if "@" in url:
        raise ConfigError(
            "the address of the schema registry contains its account",
            where=where,
            why=why,
            remedy="remove the account from the address; set value.converter.basic.auth.user.info in the Airflow "
            "connection",
        )
