"""The form fields of a verification, and the operator arguments that read them."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

MAX_EXAMPLES = 100
"""Most examples of each kind for one table; ``cdc.verify.verify_request.MAX_EXAMPLES``."""


def verify_params() -> dict[str, Param]:
    """Return the form fields of a verification."""
    return {
        "tables": Param(
            [],
            type="array",
            items={"type": "string", "minLength": 1},
            title="Tables",
            description="One database.table or regular expression per line. If empty, all captured tables.",
        ),
        "sample_percent": Param(
            100,
            type="number",
            exclusiveMinimum=0,
            maximum=100,
            title="Sample (percent)",
            description="Share of the keys that is compared; 100 compares all. The same keys are in each sample.",
        ),
        "repair": Param(
            "no",
            type="string",
            enum=["no", "dry-run", "yes"],
            title="Repair",
            description="no only reports. dry-run also counts what a repair would write. yes writes missing and "
            "differing rows again and deletes ghosts, up to repair.max.rows.",
        ),
        "show_values": Param(
            True,
            type="boolean",
            title="Show values",
            description="Show values of rows in the report. Values of masked and hashed columns are never shown.",
        ),
        "history": Param(
            False,
            type="boolean",
            title="Check the history of each key",
            description="Also check the events of each key one after the other: doubled, out of order or missing ones, "
            "and deletes without a tombstone. It takes more time and memory.",
        ),
        "examples": Param(
            10,
            type="integer",
            minimum=0,
            maximum=MAX_EXAMPLES,
            title="Examples",
            description="Examples of each kind of difference in the report, per table.",
        ),
        "fail_on_difference": Param(
            False,
            type="boolean",
            title="Fail on differences",
            description="Fail the task if differences are left or a table could not be read; otherwise it succeeds, "
            "and its result has the counts.",
        ),
    }


def verify_arguments() -> dict[str, Any]:
    """Return the arguments of ``MySqlCdcVerifyOperator`` that read the form of ``verify_params``."""
    return {
        "tables": "{{ params.tables | tojson }}",
        "sample_percent": "{{ params.sample_percent }}",
        "repair": "{{ params.repair }}",
        "show_values": "{{ params.show_values }}",
        "history": "{{ params.history }}",
        "examples": "{{ params.examples }}",
        "fail_on_difference": "{{ params.fail_on_difference }}",
    }
