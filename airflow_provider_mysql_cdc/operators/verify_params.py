"""The form fields of a verification, and the operator arguments that read them."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from airflow_provider_mysql_cdc.operators.dag_params import choice

EXAMPLES = 10
"""Examples of each kind for one table, if the form says nothing."""
MAX_EXAMPLES = 100
"""Most examples of each kind for one table; ``cdc.verify.report.verify_request.MAX_EXAMPLES``."""


def verify_params() -> dict[str, Param]:
    """Return the form fields of a verification."""
    return {
        "tables": Param(
            [],
            type=["array", "null"],
            items={"type": "string", "minLength": 1},
            title="Tables",
            description="One database.table or regular expression per line. If empty, all captured tables.",
        ),
        "sample_percent": Param(
            100,
            type=["number", "null"],
            exclusiveMinimum=0,
            maximum=100,
            title="Sample (percent)",
            description="Share of the keys that is compared; 100, or nothing, compares all. The same keys are in each "
            "sample.",
        ),
        "repair": choice(
            "Repair",
            {
                "no": "only reports",
                "dry-run": "also counts what a repair would write",
                "yes": "writes missing and differing rows again and deletes ghosts",
            },
            description="A repair writes up to repair.max.rows rows.",
        ),
        "show_values": Param(
            True,
            type=["boolean", "null"],
            title="Show values",
            description="Show values of rows in the report. Values of masked and hashed columns are never shown.",
        ),
        "history": Param(
            False,
            type=["boolean", "null"],
            title="Check the history of each key",
            description="Also check the events of each key one after the other: doubled, out of order or missing ones, "
            "and deletes without a tombstone. It takes more time and memory.",
        ),
        "examples": Param(
            EXAMPLES,
            type=["integer", "null"],
            minimum=0,
            maximum=MAX_EXAMPLES,
            title="Examples",
            description=f"Examples of each kind of difference in the report, per table. If empty, {EXAMPLES}.",
        ),
        "fail_on_difference": Param(
            False,
            type=["boolean", "null"],
            title="Fail on differences",
            description="Fail the task if differences are left, or a table or rows of it could not be judged; "
            "otherwise it succeeds, and its result has the counts.",
        ),
    }


def verify_arguments() -> dict[str, Any]:
    """Return the arguments of ``MySqlCdcVerifyOperator`` that read the form of ``verify_params``."""
    return {
        "tables": "{{ (params.tables or []) | tojson }}",
        "sample_percent": "{{ params.sample_percent or 100 }}",
        "repair": "{{ params.repair or 'no' }}",
        "show_values": "{{ params.show_values is not false }}",
        "history": "{{ params.history or false }}",
        "examples": f"{{{{ {EXAMPLES} if params.examples is none else params.examples }}}}",
        "fail_on_difference": "{{ params.fail_on_difference or false }}",
    }
