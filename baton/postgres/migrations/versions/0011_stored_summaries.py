"""Summaries count in what tenants have stored: docs/adr/0097."""

from alembic import op

revision = "0011"
down_revision = "0010"

# A row of a month is that of the summary's first item: the summary goes with that month.
_COUNT = """
    create function baton_count_compactions() returns trigger language plpgsql as $$
    begin
        insert into tenant_storage as stored (tenant, month, slot, bytes)
        values (
            coalesce(new.tenant, old.tenant),
            baton_month(coalesce(new.first_item, old.first_item)),
            mod(pg_backend_pid(), 16),
            coalesce(octet_length(new.body), 0) - coalesce(octet_length(old.body), 0)
        )
        on conflict (tenant, month, slot) do update set bytes = stored.bytes + excluded.bytes;
        return null;
    end $$
"""
_ON = (
    ("insert", "insert", "new.body is not null"),
    ("update", "update of body", "new.body is distinct from old.body"),
    ("delete", "delete", "old.body is not null"),
)


def upgrade() -> None:
    op.execute(_COUNT)
    for name, event, when in _ON:
        op.execute(
            f"create trigger count_{name} after {event} on compactions for each row "
            f"when ({when}) execute function baton_count_compactions()"
        )
    op.execute(
        "insert into tenant_storage as stored (tenant, month, slot, bytes) "
        "select tenant, baton_month(first_item), 0, sum(octet_length(body)) from compactions "
        "where body is not null group by 1, 2 "
        "on conflict (tenant, month, slot) do update set bytes = stored.bytes + excluded.bytes"
    )
