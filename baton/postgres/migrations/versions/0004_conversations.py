"""Conversations, their items, and responses: `baton.conversations` says how rows relate; and the
oldest release that can use a schema."""

from alembic import op

revision = "0004"
down_revision = "0003"

_TABLES = (
    # A release that does not know the schema's revision can use it if it knows this one: revisions
    # only add. One that takes something away writes here what it still allows.
    "create table baton_schema_oldest (revision text not null)",
    "insert into baton_schema_oldest values ('0003')",
    # `hidden`: of a chain of responses. `uses`: responses of it, and conversations that branch off
    # it. The prefix: the conversations before it, each up to an item.
    """
    create table conversations (
        tenant text not null,
        project text not null,
        id uuid not null,
        hidden boolean not null,
        version bigint not null default 1,
        uses bigint not null default 0,
        last_item uuid not null,
        total_items bigint not null default 0,
        total_bytes bigint not null default 0,
        prefix_conversations uuid[] not null default '{}',
        prefix_items uuid[] not null default '{}',
        metadata text not null default '{}',
        primary key (tenant, id)
    )
    """,
    # Bodies are text: jsonb is parsed at each insert, and no statement looks into them.
    """
    create table items (
        tenant text not null,
        conversation uuid not null,
        id uuid not null,
        body text not null,
        primary key (tenant, conversation, id)
    ) partition by range (id)
    """,
    """
    create table responses (
        tenant text not null,
        project text not null,
        id uuid not null,
        conversation uuid not null,
        last_item uuid not null,
        inputs integer not null,
        total_items bigint not null,
        total_bytes bigint not null,
        status text not null,
        body text not null,
        primary key (tenant, id)
    ) partition by range (id)
    """,
)


def upgrade() -> None:
    # Months are made by `baton.conversations.partitions`, which knows today.
    for table in _TABLES:
        op.execute(table)
