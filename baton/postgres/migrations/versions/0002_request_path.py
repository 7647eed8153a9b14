"""Where a request ran and what it waited for: the fields of `baton.usage.path.RequestPath`."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_TEXTS = (
    "priority_class",
    "router",
    "prefill_worker",
    "decode_worker",
    "kv_store",
    "cache_tier",
    "placement_reason",
)
_SECONDS = (
    "router_queue_seconds",
    "prefill_seconds",
    "transfer_seconds",
    "decode_seconds",
    "predicted_first_token_seconds",
    "predicted_queue_seconds",
    "predicted_transfer_seconds",
    "predicted_prefill_seconds",
    "predicted_token_seconds",
    "target_first_token_seconds",
    "target_token_seconds",
)


def upgrade() -> None:
    # Constants as defaults: Postgres adds the columns without rewriting the rows.
    for name in _TEXTS:
        op.add_column(
            "usage_records", sa.Column(name, sa.Text(), nullable=False, server_default="")
        )
    for name in _SECONDS:
        op.add_column("usage_records", sa.Column(name, sa.Double()))
    op.add_column("usage_records", sa.Column("moves", sa.BigInteger()))
