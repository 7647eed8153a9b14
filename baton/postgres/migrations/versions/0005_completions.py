"""Stored chat completions: `baton.conversations.completions` says what is in a row."""

from alembic import op

revision = "0005"
down_revision = "0004"

# `metadata` has a text per pair, as JSON: filters look into it, and jsonb takes no NUL.
_TABLE = """
    create table completions (
        tenant text not null,
        project text not null,
        id uuid not null,
        model text not null,
        metadata text[] not null,
        messages text not null,
        body text not null,
        primary key (tenant, project, id)
    ) partition by range (id)
"""


def upgrade() -> None:
    # Months are made by `baton.conversations.partitions`, which knows today.
    op.execute(_TABLE)
