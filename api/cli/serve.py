"""meshwright serve: the service."""

import dataclasses
from typing import Annotated

import typer

from api.settings import Settings


def serve(
    host: Annotated[str | None, typer.Option(help="Address; MESHWRIGHT_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; MESHWRIGHT_PORT.")] = None,
) -> None:
    """Start the service; settings come from MESHWRIGHT_* in the environment."""
    import uvicorn

    from api.app import create_app

    settings = Settings.from_environment()
    if host is not None:
        settings = dataclasses.replace(settings, host=host)
    if port is not None:
        settings = dataclasses.replace(settings, port=port)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=5,
        server_header=False,
    )
