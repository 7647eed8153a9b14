"""Endpoints of webhooks, deliveries that are due, and the log of attempts."""

from alembic import op

revision = "0009"
down_revision = "0008"

_TABLES = (
    # `secret` and `old_secret` are sealed with the tenant's secret; the old one signs too, until
    # `old_until`.
    """
    create table webhook_endpoints (
        tenant text not null,
        project text not null,
        id uuid not null,
        name text not null,
        url text not null,
        event_types text[] not null,
        secret text not null,
        hint text not null,
        old_secret text not null default '',
        old_until timestamptz not null default '-infinity',
        updated timestamptz not null,
        primary key (tenant, project, id)
    )
    """,
    # One row until an event has arrived at an endpoint, or is given up. A frontend that delivers it
    # moves `due` on first: that is its lease. `url`: where it goes, if that is no endpoint's.
    """
    create table webhook_deliveries (
        tenant text not null,
        project text not null,
        endpoint uuid not null,
        event uuid not null,
        type text not null,
        body text not null,
        url text not null default '',
        attempt integer not null default 0,
        due timestamptz not null,
        primary key (tenant, endpoint, event)
    )
    """,
    "create index webhook_deliveries_due on webhook_deliveries (endpoint, due)",
    """
    create table webhook_attempts (
        tenant text not null,
        project text not null,
        endpoint uuid not null,
        event uuid not null,
        attempt integer not null,
        type text not null,
        began timestamptz not null,
        seconds real not null,
        status integer not null,
        outcome text not null,
        detail text not null,
        primary key (tenant, project, event, endpoint, attempt)
    )
    """,
    "create index webhook_attempts_began on webhook_attempts (began)",
)


def upgrade() -> None:
    for table in _TABLES:
        op.execute(table)
