"""Put a plan in force, and compare the current properties with those under which it was started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import RECORD_FORMAT_LABEL, changed_pins, property_pins
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord


def begin_pinned_plan(
    cfg: ConnectorConfig,
    job: JobLedger,
    plan: BatchPlan,
    first_records: Sequence[SideRecord] = (),
    after: BatchPlan | None = None,
) -> tuple[LedgerState, BatchPlan]:
    """Put a plan in force: only its writers can add anything afterwards, and its pins are the current properties.

    A plan of which nothing is committed gets the current properties.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        plan: The plan.
        first_records: Records that become visible with the plan when it comes into force for the first time.
        after: The batch before, where its writers live on.

    Returns:
        The ledger with the plan in it, and the plan, which has the attempt's id now.

    Raises:
        ConfigError: A part of it was committed under other properties; the error names them.
        OffsetConflictError: The ledger holds another plan.
    """
    ledger = job.begin(plan, first_records=first_records, after=after)
    plan = ledger.plan_in_force()
    current_pins = property_pins(cfg, snapshot=plan.kind == "snapshot")
    if ledger.has_commits():
        if not ledger.complete():
            require_same_pins(plan, current_pins)
        return ledger, plan
    if dict(plan.pins) != current_pins:
        plan = replace(plan, pins=current_pins)
        job.replace_plan(plan)
        ledger = replace(ledger, plan=plan)
    return ledger, plan


def require_same_snapshot_mode(cfg: ConnectorConfig, plan: BatchPlan) -> None:
    """Refuse to continue a snapshot under a mode that means another kind of work.

    This holds even when nothing of it is committed: where the stream continues after the snapshot was decided when it
    was planned.

    Args:
        cfg: The connector's configuration.
        plan: The unfinished snapshot.

    Raises:
        ConfigError: ``snapshot.mode`` was changed to or from ``never`` or ``recovery``.
    """
    name = F.SNAPSHOT_MODE.name
    planned, current = ({name: p[name]} if name in p else {} for p in (plan.pins, property_pins(cfg, snapshot=True)))
    if planned == current or not plan.pins or not {"=never", "=recovery"} & {*planned.values(), *current.values()}:
        return
    raise ConfigError(
        "snapshot.mode was changed before the snapshot was finished: "
        + "; ".join(changed_pins({RECORD_FORMAT_LABEL: ""} | planned, {RECORD_FORMAT_LABEL: ""} | current)),
        where=f"snapshot {plan.epoch}, planned by {plan.owner or 'unknown'}",
        why="the snapshot would be finished without its rows, or with rows that the mode excludes",
        remedy="set it back until the snapshot is finished, then change it; or abandon the snapshot with DAG "
        "mysql_cdc_reset_offset (offset=current or earliest decides where the stream starts then)",
    )


def require_same_pins(plan: BatchPlan, current_pins: dict[str, str]) -> None:
    """Refuse to continue a plan that was started under other properties.

    Args:
        plan: The plan in the ledger.
        current_pins: Pins of the current configuration.

    Raises:
        ConfigError: A property that decides which records are written has another value.
    """
    changed = changed_pins(plan.pins, current_pins)
    if not changed:
        return
    work = "snapshot" if plan.kind == "snapshot" else "batch"
    snapshot_remedy = (
        ", then take the snapshot again (mysql_cdc_snapshot with again=true)" if plan.kind == "snapshot" else ""
    )
    raise ConfigError(
        f"properties that decide which records are written were changed inside a {work}: " + "; ".join(changed),
        where=f"{plan.kind} {plan.epoch}, {plan.start} to {plan.end}",
        why="a part is committed under the earlier values; under other values, records could be written twice or "
        "not at all",
        remedy=f"set them back until {work} {plan.epoch} is finished, then change them; or abandon the rest with DAG "
        "mysql_cdc_reset_offset"
        + (snapshot_remedy or " (offset=stored; records that are already committed are written a second time)"),
    )
