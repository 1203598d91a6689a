"""Keeps requests, candidates, dry runs, trials and campaigns, on SQLite and on PostgreSQL alike."""

from api.store.engine import create_engine
from api.store.ids import new_id
from api.store.jobs import IdempotencyConflict, Once
from api.store.migrate import migrate
from api.store.records import (
    CalibrationRecord,
    CampaignRecord,
    CandidateRecord,
    DryRunRecord,
    NewCandidate,
    PlanRecord,
    Status,
    TrialRecord,
)
from api.store.store import Store

__all__ = [
    "CalibrationRecord",
    "CampaignRecord",
    "CandidateRecord",
    "DryRunRecord",
    "IdempotencyConflict",
    "NewCandidate",
    "Once",
    "PlanRecord",
    "Status",
    "Store",
    "TrialRecord",
    "create_engine",
    "migrate",
    "new_id",
]
