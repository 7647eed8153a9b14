"""Which provider ran a request: the field `provider` of `baton.usage.path.RequestPath`."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # A constant as default: Postgres adds the column without rewriting the rows.
    column = sa.Column("provider", sa.Text(), nullable=False, server_default="")
    op.add_column("usage_records", column)
