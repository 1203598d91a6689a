"""Runs migrations on the connection that api.store.migrate opened."""

from typing import Any

from alembic import context

from api.store.migrate import VERSION_TABLE
from api.store.tables import Base


def ours(name: str | None, kind: str, _parents: Any) -> bool:
    """Leaves the job engine's tables alone."""
    return kind != "table" or name in Base.metadata.tables


connection = context.config.attributes["connection"]
if connection is None:
    raise RuntimeError("migrations run through api.store.migrate, which opens the connection")
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    include_name=ours,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
