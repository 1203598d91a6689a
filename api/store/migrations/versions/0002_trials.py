"""Dry runs, trials, campaigns, and what they taught about a cluster."""

import sqlalchemy as sa
from alembic import op

from api.store.columns import Json, UtcDateTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _job(table: str, *columns: sa.Column[object] | sa.schema.SchemaItem) -> None:
    op.create_table(
        table,
        sa.Column("id", sa.String(100), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("result", Json),
        sa.Column("error", Json),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime()),
        sa.Column("finished_at", UtcDateTime()),
        sa.Column("plan_request_id", sa.String(36), nullable=False),
        *columns,
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
        sa.ForeignKeyConstraint(
            ["plan_request_id"],
            ["mw_plan_requests.id"],
            name=op.f(f"fk_{table}_plan_request_id"),
            ondelete="CASCADE",
        ),
    )
    for column in ("status", "plan_request_id"):
        op.create_index(op.f(f"ix_{table}_{column}"), table, [column])


def upgrade() -> None:
    with op.batch_alter_table("mw_plan_requests") as batch:
        batch.add_column(sa.Column("calibration", Json))
    _job(
        "mw_dry_runs",
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("options", Json, nullable=False),
    )
    _job(
        "mw_campaigns",
        sa.Column("executor", sa.String(32), nullable=False),
        sa.Column("settings", Json, nullable=False),
        sa.Column("known", Json),
    )
    _job(
        "mw_trials",
        sa.Column("campaign_id", sa.String(100)),
        sa.Column("rank", sa.Integer()),
        sa.Column("executor", sa.String(32), nullable=False),
        sa.Column("state", sa.String(16)),
        sa.Column("trial", Json, nullable=False),
        sa.Column("predicted", Json),
        sa.Column("logs", sa.Text()),
        sa.ForeignKeyConstraint(
            ["campaign_id"],
            ["mw_campaigns.id"],
            name=op.f("fk_mw_trials_campaign_id"),
            ondelete="CASCADE",
        ),
    )
    op.create_index(op.f("ix_mw_trials_campaign_id"), "mw_trials", ["campaign_id"])
    op.create_table(
        "mw_calibrations",
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("calibration", Json, nullable=False),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_mw_calibrations")),
    )


def downgrade() -> None:
    for table in ("mw_calibrations", "mw_trials", "mw_campaigns", "mw_dry_runs"):
        op.drop_table(table)
    with op.batch_alter_table("mw_plan_requests") as batch:
        batch.drop_column("calibration")
