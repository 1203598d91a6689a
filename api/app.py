"""The application: settings, store, jobs, routes put together."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.staticfiles import StaticFiles

from api import problems
from api.http.body_limit import BodyLimitMiddleware
from api.http.etag import ETagMiddleware
from api.http.security import require_key, require_password
from api.http.unique_keys import unique_keys
from api.jobs import Jobs
from api.problems import Problem, problem_responses
from api.problems.parameters import given_once
from api.routes import OPEN_ROUTERS, ROUTERS
from api.settings import Settings
from api.store import Store, create_engine, migrate
from api.web import pages, reference, run_pages
from api.web.templating import FOLDER

log = logging.getLogger(__name__)

try:
    VERSION = version("meshwright")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0"


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    engine = create_engine(settings.url)
    store = Store(engine)
    jobs = Jobs(settings, store)
    app.state.store, app.state.jobs = store, jobs
    try:
        await run_in_threadpool(migrate, engine)
        await run_in_threadpool(jobs.start)
        yield
    finally:
        await run_in_threadpool(jobs.stop)
        engine.dispose()


def create_app(settings: Settings | None = None) -> FastAPI:
    """The service. It opens its database and starts its jobs when it is served."""
    app = FastAPI(
        title="Meshwright",
        version=VERSION,
        summary="Which distributed training plan runs a model on a cluster, and how fast.",
        description="POST a model and a cluster to /v1/plans, page through the ranked candidates, "
        "take the DeepSpeed config of the one you choose. Every error is problem+json (RFC 9457).",
        lifespan=_lifespan,
        # The framework's pages load their script from another host.
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
        separate_input_output_schemas=False,
        responses=problem_responses(500),
    )
    app.state.settings = settings or Settings.from_environment()
    problems.install(app)
    app.add_middleware(ETagMiddleware)
    app.add_middleware(BodyLimitMiddleware, limit=app.state.settings.max_body_bytes)
    for router in ROUTERS:
        guards = [Depends(require_key), Depends(given_once), Depends(unique_keys)]
        app.include_router(router, prefix="/v1", dependencies=guards)
    for router in OPEN_ROUTERS:
        app.include_router(router)
    for router in (pages.router, run_pages.router, reference.router):
        app.include_router(router, dependencies=[Depends(require_password), Depends(given_once)])
    app.mount("/static", StaticFiles(directory=FOLDER / "static"), name="static")
    _document_problems(app)
    return app


def _operation_id(route: APIRoute) -> str:
    return route.name


def _document_problems(app: FastAPI) -> None:
    """The framework documents a validation error that no route here answers with."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        schema = generate()
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        if "Problem" not in schemas:
            problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= problem.pop("$defs", {})
            schemas["Problem"] = problem
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for operations in schema.get("paths", {}).values():
            for operation in operations.values():
                if "422" in operation["responses"]:
                    operation["responses"]["422"] = problem_responses(422)[422]
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
