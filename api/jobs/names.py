"""Names and numbers that the job engine keeps in the database: change them only with care."""

APPLICATION = "meshwright"
APPLICATION_VERSION = "1"
"""Pinned: by default it is a digest of the code, and jobs of an older digest are not recovered.
Raise it when a workflow changes so that a half-done job of the old form cannot go on."""

PLAN_QUEUE = "plans"
PLAN_SEARCH = "plan_search"

DRY_RUN_QUEUE = "dry-runs"
DRY_RUN = "dry_run"

TRIAL = "trial"

CAMPAIGN_QUEUE = "campaigns"
CAMPAIGN = "campaign"


def trial_queue(executor: str) -> str:
    """Each executor has its own queue, with its own limit."""
    return f"trials-{executor}"
