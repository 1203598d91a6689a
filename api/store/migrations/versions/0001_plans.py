"""Requests, candidates, predictions, idempotency keys, workers."""

import sqlalchemy as sa
from alembic import op

from api.store.columns import Json, UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "mw_plan_requests",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("request", Json, nullable=False),
        sa.Column("summary", Json, nullable=False),
        sa.Column("progress", Json),
        sa.Column("result", Json),
        sa.Column("error", Json),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime()),
        sa.Column("finished_at", UtcDateTime()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mw_plan_requests")),
    )
    op.create_index(op.f("ix_mw_plan_requests_status"), "mw_plan_requests", ["status"])
    op.create_table(
        "mw_candidates",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("plan_request_id", sa.String(36), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("plan", Json, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mw_candidates")),
        sa.ForeignKeyConstraint(
            ["plan_request_id"],
            ["mw_plan_requests.id"],
            name=op.f("fk_mw_candidates_plan_request_id"),
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint(
            "plan_request_id", "rank", name=op.f("uq_mw_candidates_plan_request_id_rank")
        ),
    )
    op.create_table(
        "mw_predictions",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("step_seconds", sa.Double(), nullable=False),
        sa.Column("tokens_per_s", sa.Double(), nullable=False),
        sa.Column("mfu", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.Double(), nullable=False),
        sa.Column("host_bytes", sa.Double(), nullable=False),
        sa.Column("fits", sa.Boolean(), nullable=False),
        sa.Column("fits_probability", sa.Double(), nullable=False),
        sa.Column("days", sa.Double()),
        sa.Column("usd", sa.Double()),
        sa.Column("detail", Json, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mw_predictions")),
        sa.ForeignKeyConstraint(
            ["candidate_id"],
            ["mw_candidates.id"],
            name=op.f("fk_mw_predictions_candidate_id"),
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("candidate_id", name=op.f("uq_mw_predictions_candidate_id")),
    )
    op.create_table(
        "mw_idempotency_keys",
        sa.Column("route", sa.String(64), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("body_sha256", sa.String(64), nullable=False),
        sa.Column("resource_id", sa.String(36), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("route", "key", name=op.f("pk_mw_idempotency_keys")),
    )
    op.create_table(
        "mw_workers",
        sa.Column("id", sa.String(128), nullable=False),
        sa.Column("machine", sa.String(128), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("seen", sa.Double(), nullable=False),
        sa.Column("dead", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mw_workers")),
    )


def downgrade() -> None:
    op.drop_table("mw_workers")
    op.drop_table("mw_idempotency_keys")
    op.drop_table("mw_predictions")
    op.drop_table("mw_candidates")
    op.drop_index(op.f("ix_mw_plan_requests_status"), table_name="mw_plan_requests")
    op.drop_table("mw_plan_requests")
