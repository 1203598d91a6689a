"""What trials have taught about each kind of cluster."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from api.store.jobs import now
from api.store.records import CalibrationRecord
from api.store.tables import CalibrationRow


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

    def keep(self, key: str, calibration: dict[str, Any], trials: int) -> bool:
        """Keeps a calibration unless one of more trials is there: False then.

        Two campaigns on one kind of cluster at a time each learn from their own trials alone.
        """
        with self.session.begin() as session:
            row = session.get(CalibrationRow, key, with_for_update=True)
            if row is not None and row.trials > trials:
                return False
            values = {"calibration": calibration, "trials": trials, "updated_at": now()}
            if row is None:
                session.add(CalibrationRow(key=key, **values))
            else:
                for name, value in values.items():
                    setattr(row, name, value)
            return True

    def forget(self, key: str) -> bool:
        """Drops what is known of a kind; False where nothing is."""
        with self.session.begin() as session:
            row = session.get(CalibrationRow, key)
            if row is not None:
                session.delete(row)
            return row is not None
