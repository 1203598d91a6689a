"""Column types and expressions that mean the same on both databases."""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A moment in UTC. SQLite forgets the zone of what it keeps, so it is put back."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """To the database: in UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:
        """From the database: with its zone."""
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class epoch_now(FunctionElement[float]):  # noqa: N801 - written like the SQL function that it is
    """Seconds since 1970 by the database's clock, which all processes share."""

    type = sa.Float()
    inherit_cache = True


@compiles(epoch_now, "sqlite")
def _epoch_sqlite(_element: epoch_now, _compiler: Any, **_: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(epoch_now, "postgresql")
def _epoch_postgresql(_element: epoch_now, _compiler: Any, **_: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"
