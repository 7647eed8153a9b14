"""Responses that run in the background, and the events of their streams."""

from alembic import op

revision = "0006"
down_revision = "0005"

_TABLES = (
    # One row while a response runs. `owner`: the frontend that runs it, until `lease_until`; empty:
    # none. `attempt` counts owners: what an earlier one writes is not taken.
    """
    create table background_responses (
        tenant text not null,
        project text not null,
        id uuid not null,
        owner text not null,
        attempt integer not null default 1,
        lease_until timestamptz not null,
        cancelled boolean not null default false,
        request text not null,
        body text not null,
        primary key (tenant, id)
    )
    """,
    "create index background_responses_lease on background_responses (lease_until)",
    # Compressed: what was generated within about a second. `last` is the sequence number of the
    # last event.
    """
    create table response_events (
        tenant text not null,
        response uuid not null,
        last bigint not null,
        events bytea not null,
        output bytea not null,
        primary key (tenant, response, last)
    ) partition by range (response)
    """,
)


def upgrade() -> None:
    for table in _TABLES:
        op.execute(table)
