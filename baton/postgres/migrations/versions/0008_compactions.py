"""Summaries of stored conversations."""

from alembic import op

revision = "0008"
down_revision = "0007"

_TABLE = """
create table compactions (
    tenant text not null,
    conversation uuid not null,
    last_item uuid not null,
    first_item uuid not null,
    conversations uuid[] not null,
    items bigint not null,
    tokens bigint not null,
    owner text not null,
    lease_until timestamptz not null,
    error text not null default '',
    body text,
    primary key (tenant, conversation, last_item),
    foreign key (tenant, conversation) references conversations (tenant, id) on delete cascade
)
"""
# `last_item`: of the items that it stands for; `items`: how many these are. `conversations`: all
# that they are of. Until there is a body, `owner` writes it until `lease_until`; `error`: why it
# did not.


def upgrade() -> None:
    op.execute(_TABLE)
