"""Usage records: one row per request, a column per field of `baton.usage.record.UsageRecord`."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "usage_records",
        sa.Column("id", postgresql.UUID(), primary_key=True),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False, server_default=""),
        sa.Column("key", sa.Text(), nullable=False, server_default=""),
        sa.Column("tier", sa.Text(), nullable=False),
        sa.Column("batch", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("weights", sa.Text(), nullable=False),
        sa.Column("adapter", sa.Text(), nullable=False, server_default=""),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("frontend", sa.Text(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.DateTime(timezone=True)),
        sa.Column("seconds", sa.Double()),
        sa.Column("first_token_seconds", sa.Double()),
        sa.Column("queue_seconds", sa.Double()),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger()),
        sa.Column("output_tokens", sa.BigInteger()),
        sa.Column("kv_byte_seconds", sa.Double()),
        sa.Column(
            "finish_reasons", postgresql.ARRAY(sa.Text()), nullable=False, server_default="{}"
        ),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("cost_nanodollars", sa.BigInteger()),
    )
    # A tenant's days, and those of one of its projects. Ids are UUIDv7: the primary key is in the
    # order of time, and finds what is old.
    op.create_index("usage_records_tenant_began", "usage_records", ["tenant", "began"])
    op.create_index("usage_records_project_began", "usage_records", ["project", "began"])
