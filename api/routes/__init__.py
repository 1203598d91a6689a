"""The routes. A file each; a new one is added to ROUTERS."""

from fastapi import APIRouter

from api.routes import (
    calibrations,
    campaigns,
    candidates,
    catalogue,
    check,
    dry_runs,
    events,
    explain,
    exports,
    health,
    plans,
    predict,
    trials,
)

ROUTERS: tuple[APIRouter, ...] = (
    plans.router,
    candidates.router,
    exports.router,
    explain.router,
    dry_runs.router,
    trials.router,
    campaigns.router,
    calibrations.router,
    events.router,
    predict.router,
    catalogue.router,
    check.router,
)
"""Routes under /v1; they need the API key where one is set."""

OPEN_ROUTERS: tuple[APIRouter, ...] = (health.router,)
"""Routes that need no key."""
