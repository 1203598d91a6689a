"""Keeps requests, candidates and predictions, on SQLite and on PostgreSQL alike."""

from api.store.engine import create_engine
from api.store.migrate import migrate
from api.store.records import CandidateRecord, NewCandidate, PlanRecord, PlanStatus
from api.store.store import IdempotencyConflict, Store

__all__ = [
    "CandidateRecord",
    "IdempotencyConflict",
    "NewCandidate",
    "PlanRecord",
    "PlanStatus",
    "Store",
    "create_engine",
    "migrate",
]
