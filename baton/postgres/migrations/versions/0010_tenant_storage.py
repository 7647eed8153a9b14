"""What each tenant has stored, counted as rows come and go: docs/adr/0097."""

from alembic import op

revision = "0010"
down_revision = "0009"

_MONTH = """
    create function baton_month(id uuid) returns integer immutable parallel safe language sql as $$
        select to_char(
            to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000)
                at time zone 'UTC',
            'YYYYMM'
        )::integer
    $$
"""
# A connection writes rows of one slot, so that few wait for each other. `month`: that of the rows'
# ids, as 202701, which is dropped with them; 0: of conversations, which outlive months.
_TABLE = """
    create table tenant_storage (
        tenant text not null,
        month integer not null,
        slot smallint not null,
        conversations bigint not null default 0,
        bytes bigint not null default 0,
        primary key (tenant, month, slot)
    )
"""
# Of rows of a statement, `changed`; the argument is 1 if they came, and -1 if they went.
_COUNT = """
    create function baton_count_{table}() returns trigger language plpgsql as $$
    begin
        insert into tenant_storage as stored (tenant, month, slot, bytes)
        select tenant, baton_month(id), mod(pg_backend_pid(), 16),
            tg_argv[0]::integer * sum({size})
        from changed group by 1, 2 order by 1, 2
        on conflict (tenant, month, slot) do update set bytes = stored.bytes + excluded.bytes;
        return null;
    end $$
"""
_ON = """
    create trigger count_{event} after {event} on {table}
    referencing {which} table as changed
    for each statement execute function baton_count_{table}('{sign}')
"""
_CONVERSATIONS = """
    create function baton_count_conversations() returns trigger language plpgsql as $$
    begin
        insert into tenant_storage as stored (tenant, month, slot, conversations)
        values (coalesce(new.tenant, old.tenant), 0, mod(pg_backend_pid(), 16), tg_argv[0]::integer)
        on conflict (tenant, month, slot)
            do update set conversations = stored.conversations + excluded.conversations;
        return null;
    end $$
"""
_ON_CONVERSATIONS = (
    ("insert", "insert", "not new.hidden", 1),
    ("hide", "update of hidden", "new.hidden and not old.hidden", -1),
    ("delete", "delete", "not old.hidden", -1),
)
_SIZES = {
    "items": "octet_length(body)",
    "responses": "octet_length(body)",
    "completions": "octet_length(messages) + octet_length(body)",
}


def upgrade() -> None:
    for statement in (_MONTH, _TABLE, _CONVERSATIONS):
        op.execute(statement)
    for name, event, when, sign in _ON_CONVERSATIONS:
        op.execute(
            f"create trigger count_{name} after {event} on conversations for each row "
            f"when ({when}) execute function baton_count_conversations('{sign}')"
        )
    op.execute(
        "insert into tenant_storage (tenant, month, slot, conversations) "
        "select tenant, 0, 0, count(*) from conversations where not hidden group by 1"
    )
    for table, size in _SIZES.items():
        op.execute(_COUNT.format(table=table, size=size))
        for event, which, sign in (("insert", "new", 1), ("delete", "old", -1)):
            op.execute(_ON.format(table=table, event=event, which=which, sign=sign))
        # Writes wait meanwhile: the month is computed once for each partition, which is of one
        # month and has all of its rows of a tenant.
        op.execute(
            "insert into tenant_storage as stored (tenant, month, slot, bytes) "
            f"select tenant, baton_month(min(id::text)::uuid), 0, sum({size}) from {table} "
            "group by tenant, tableoid "
            "on conflict (tenant, month, slot) do update set bytes = stored.bytes + excluded.bytes"
        )
