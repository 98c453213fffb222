"""Step results as Dagster shows them: metadata worth reading, checks, and one log line a decision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import dagster as dg

from modelplane_dagster.errors import ClusterBusyError, ModelplaneError, RefusedError
from modelplane_dagster.findings import Finding, Severity, finding
from resources.steps.result import Row, StepResult

log = logging.getLogger("modelplane")
READY = "ready"

# Which finding speaks to which check of a pool's devices.
_REACH = (
    "StackMissesPool",
    "DaemonMissing",
    "DriverNotReady",
    "SliceMissing",
    "SliceIncomplete",
    "DevicesMissing",
    "LabelMissing",
    "PlanDisagrees",
    "UndeclaredWorkload",
    "PoolPending",
    "ReadFailed",
    "CpuNotAllocatable",
)
_STRAYS = ("StackStrays",)
_TOLERATIONS = ("TolerationTooBroad", "ToleratesEverything", "KeylessToleration", "ForeignTolerates")
_LEDGER = ("DevicePluginBesideDra", "SecondOwner", "SecondNfd")
# Check of `devices_<pool>`: the codes that it holds, and what it says.
DEVICE_CHECKS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "reach": (_REACH, "Every stack that the pool's class claims runs on each of its nodes and publishes its devices."),
    "stay_off": (_STRAYS, "No stack runs on a node that it must stay off."),
    "tolerations": (_TOLERATIONS, "No pod of ours tolerates more than it needs."),
    "double_ledger": (_LEDGER, "One ledger hands out each device."),
}
LABELS_AND_TAINTS = ("LabelMissing", "TaintMissing", "LabelDrift", "NodesMissing")


def table(rows: Iterable[Row]) -> dg.TableMetadataValue:
    records = [dg.TableRecord({k: _cell(v) for k, v in row.items()}) for row in rows]
    if not records:
        return dg.MetadataValue.table(records, schema=dg.TableSchema(columns=[dg.TableColumn("nothing")]))
    return dg.MetadataValue.table(records)


def _cell(value: object) -> str | int | float | bool:
    return value if isinstance(value, str | int | float | bool) else ("-" if value is None else str(value))


def finding_rows(findings: Iterable[Finding]) -> list[Row]:
    """Three wide columns: the UI breaks narrow ones into single words."""
    return [
        {
            "finding": f"{f.severity.value} {f.code} of {f.subject}",
            "message": f"{f.message} ({f.place.file}:{f.place.line})" if f.place else f.message,
            "fix": f.fix,
        }
        for f in findings
    ]


def findings_in(metadata: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The findings that `finding_rows` put into a step's metadata; empty where there are none."""
    told = metadata.get("findings")
    if not isinstance(told, dg.TableMetadataValue):
        return ()
    found = []
    for record in told.records:
        severity, code, _, subject = str(record.data["finding"]).split(" ", 3)
        message, fix = str(record.data["message"]), str(record.data["fix"])
        found.append(finding(code, subject, message, fix=fix, severity=Severity(severity)))
    return tuple(found)


def check(
    name: str, key: dg.AssetKey, findings: Iterable[Finding], *, passed: bool | None = None, text: str = ""
) -> dg.AssetCheckResult:
    """A check over findings: it fails with an error among them; warnings alone pass and are shown."""
    rows = tuple(findings)
    errors = [f for f in rows if f.severity is Severity.ERROR]
    holds = not errors if passed is None else passed
    metadata: dict[str, Any] = {"findings": table(finding_rows(rows))} if rows else {}
    sentence = text or (f"{errors[0].code}: {errors[0].message}" if errors else "nothing to object")
    return dg.AssetCheckResult(
        check_name=name,
        asset_key=key,
        passed=holds,
        severity=dg.AssetCheckSeverity.ERROR,
        description=sentence,
        metadata=metadata,
    )


def ready_check(key: dg.AssetKey, result: StepResult) -> dg.AssetCheckResult:
    """The non-blocking check that says ready, pending (a warning) or failed."""
    severity = dg.AssetCheckSeverity.ERROR if result.state == "failed" else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(
        check_name=READY,
        asset_key=key,
        passed=result.state == "ready",
        severity=severity,
        description=f"{result.state}: {result.sentence}",
        metadata={"findings": table(finding_rows(result.findings))} if result.findings else {},
    )


def materialised(
    key: dg.AssetKey,
    result: StepResult,
    *,
    checks: Iterable[dg.AssetCheckResult] = (),
    more: Mapping[str, Any] | None = None,
    version: str | None = None,
) -> dg.MaterializeResult:
    """What a step saw, as a materialisation with its `ready` check. `version` is of what was asked for: with the default,
    which differs each time, the UI calls everything below a repeated step unsynced."""
    metadata: dict[str, Any] = {"state": result.state, "says": result.sentence, "changed": result.changed}
    # Passes and the sensor go by the state: a note of that name must not take its place.
    metadata |= {k: v for k, v in result.notes.items() if v is not None and k not in metadata}
    metadata |= {title: table(rows) for title, rows in result.tables.items()}
    if result.findings:
        metadata["findings"] = table(finding_rows(result.findings))
    log.info("%s: %s%s: %s", result.subject, result.state, " (changed)" if result.changed else "", result.sentence)
    return dg.MaterializeResult(
        asset_key=key,
        metadata={**metadata, **(more or {})},
        check_results=[ready_check(key, result), *checks],
        data_version=dg.DataVersion(version) if version else None,
    )


def run_step(step: Callable[[], StepResult]) -> StepResult:
    """Runs a step; a refusal and a busy lease end it without a retry, in the gate's own words."""
    try:
        return step()
    except RefusedError as error:
        log.info("refused: %s", error.message)
        raise failure(error) from error
    except ClusterBusyError as error:
        raise failure(error) from error


def failure(error: ModelplaneError) -> dg.Failure:
    metadata = {"findings": table(finding_rows(error.findings))} if error.findings else {}
    return dg.Failure(description=error.message, metadata=metadata, allow_retries=False)


def picked(findings: Iterable[Finding], codes: Iterable[str]) -> tuple[Finding, ...]:
    wanted = set(codes)
    return tuple(f for f in findings if f.code in wanted)
