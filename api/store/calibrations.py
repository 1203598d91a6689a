"""What trials have taught about each kind of cluster."""

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from api.store.jobs import now
from api.store.records import CalibrationRecord
from api.store.tables import CalibrationRow

Change = Callable[[dict[str, Any] | None], dict[str, Any]]
"""From what is known of a kind, None where nothing is, to what is known now."""


def _record(row: CalibrationRow) -> CalibrationRecord:
    return CalibrationRecord(row.key, row.calibration, row.trials, row.updated_at)


class Calibrations:
    """One row for each kind of cluster."""

    def __init__(self, session: sessionmaker[Session]) -> None:
        self.session = session

    def get(self, key: str) -> CalibrationRecord | None:
        """What is known of a kind."""
        with self.session() as session:
            row = session.get(CalibrationRow, key)
            return None if row is None else _record(row)

    def every(self) -> Sequence[CalibrationRecord]:
        """All that is known, the last learned first."""
        select = sa.select(CalibrationRow).order_by(CalibrationRow.updated_at.desc())
        with self.session() as session:
            return [_record(row) for row in session.scalars(select)]

    def change(self, session: Session, key: str, change: Change) -> None:
        """Replaces what is known of a kind, in a transaction that has written already.

        That it has written matters: from then on SQLite lets nobody else write, so that what is
        read here is what is replaced. PostgreSQL locks the row; where two transactions add the
        first row of a kind at once, one of them fails and is tried again.
        """
        row = session.get(CalibrationRow, key, with_for_update=True, populate_existing=True)
        calibration = change(None if row is None else row.calibration)
        values = {
            "calibration": calibration,
            "trials": calibration["n_trials"],
            "updated_at": now(),
        }
        if row is None:
            session.add(CalibrationRow(key=key, **values))
        else:
            for name, value in values.items():
                setattr(row, name, value)
        session.flush()

    def forget(self, key: str) -> bool:
        """Drops what is known of a kind; False where nothing is."""
        with self.session.begin() as session:
            row = session.get(CalibrationRow, key)
            if row is not None:
                session.delete(row)
            return row is not None
