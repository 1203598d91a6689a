"""The workflow of one dry run of a candidate."""

import logging

from dbos import DBOS
from sqlalchemy.exc import SQLAlchemyError

from api.faults import unexpected
from api.jobs.names import DRY_RUN
from api.jobs.pool import ShuttingDown
from api.jobs.services import services
from api.jobs.steps import step
from api.resolving import resolved_for
from api.store import DryRunRecord
from cost_model.plans import Plan
from trials.dryrun.result import DryRunFailure, DryRunResult
from trials.dryrun.run import dry_run as run_in_children

log = logging.getLogger(__name__)

TITLES = {
    "refused": "The engine refuses the config",
    "unsupported": "The model cannot be built for a dry run",
    "timeout": "The time limit passed",
    "crashed": "The dry run died",
}


@DBOS.workflow(name=DRY_RUN)
def dry_run(dry_run_id: str) -> str:
    """Runs it; returns its final status."""
    return run_dry_run(dry_run_id)


@step("run_dry_run")
def run_dry_run(dry_run_id: str) -> str:
    """Runs the exported config in processes of its own; after a crash it begins anew."""
    table = services().store.dry_runs
    if table.start(dry_run_id):
        record = table.get(dry_run_id)
        assert record is not None
        try:
            table.succeed(dry_run_id, result=_run(record).to_json())
        except DryRunFailure as failure:
            if services().stopping.is_set():
                raise ShuttingDown from failure
            if failure.kind == "cancelled":
                log.info("dry run %s was cancelled", dry_run_id)
            else:
                error = {"title": TITLES[failure.kind], "kind": failure.kind}
                table.fail(dry_run_id, error | {"detail": str(failure)})
        except SQLAlchemyError:
            raise
        except Exception as error:  # a fault here must not leave it running for ever
            log.exception("dry run %s failed", dry_run_id)
            table.fail(dry_run_id, {"title": "The dry run failed", "detail": unexpected(error)})
    ended = table.get(dry_run_id)
    return "gone" if ended is None else ended.status


def _run(record: DryRunRecord) -> DryRunResult:
    store, stopping = services().store, services().stopping
    plan = store.plan(record.plan_request_id)
    candidate = store.candidate(record.plan_request_id, record.rank)
    assert plan is not None
    assert candidate is not None

    def wanted() -> bool:
        current = store.dry_runs.get(record.id)
        return not stopping.is_set() and current is not None and current.status == "running"

    resolved = resolved_for(plan, candidate)
    return run_in_children(
        resolved.model,
        resolved.cluster,
        resolved.training,
        Plan.model_validate(candidate.plan),
        stages=record.options.get("stages"),
        time_limit_s=record.options["time_limit_s"],
        wanted=wanted,
    )
