"""Files and their objects, batches and their lines: `baton.files` and `baton.batches` say how rows
relate."""

from alembic import op

revision = "0007"
down_revision = "0006"

_TABLES = (
    # `ready`: whether the object is whole. `bytes`: of the object; before, as many as it may have.
    """
    create table files (
        tenant text not null,
        project text not null,
        id uuid not null,
        ready boolean not null default false,
        purpose text not null,
        name text not null,
        bytes bigint not null,
        sha256 bytea,
        expires_at timestamptz,
        touched_at timestamptz not null default now(),
        primary key (tenant, id)
    )
    """,
    "create index files_expires on files (expires_at) where expires_at is not null",
    "create index files_unready on files (touched_at) where not ready",
    # Objects without a row, whatever deleted it: they are deleted next.
    "create table orphaned_objects (file uuid primary key)",
    """
    create function baton_orphan_object() returns trigger language plpgsql as $$
    begin
        insert into orphaned_objects values (old.id) on conflict do nothing;
        return null;
    end
    $$
    """,
    """
    create trigger files_deleted after delete on files
    for each row execute function baton_orphan_object()
    """,
    # `owner` has it until `lease_until`, to check its lines or to write its output. `outcome`: the
    # status that it will have once its output is written.
    """
    create table batches (
        tenant text not null,
        project text not null,
        id uuid not null,
        key text not null,
        status text not null,
        outcome text not null default 'completed',
        endpoint text not null,
        model text not null default '',
        input_file uuid not null,
        output_file uuid,
        error_file uuid,
        completion_window text not null,
        output_expires_seconds integer,
        metadata text not null,
        callback_url text not null default '',
        errors text not null default '',
        total integer not null default 0,
        completed integer not null default 0,
        failed integer not null default 0,
        prompt_tokens bigint not null default 0,
        cached_tokens bigint not null default 0,
        output_tokens bigint not null default 0,
        created_at timestamptz not null default now(),
        expires_at timestamptz not null,
        in_progress_at timestamptz,
        finalizing_at timestamptz,
        cancelling_at timestamptz,
        ended_at timestamptz,
        owner text not null default '',
        attempt integer not null default 0,
        lease_until timestamptz not null default now(),
        primary key (tenant, id)
    )
    """,
    "create index batches_running on batches (expires_at) where ended_at is null",
    # `state`: 0 until it has a result, then 1 (a response) or 2 (an error). `attempt` counts
    # claims: what an earlier owner writes is not taken. `usage`: its usage record, until that is
    # in a spool. `prefix`: digests of what the prompt begins with, by which lines run. Bodies are
    # text: jsonb is parsed at each insert.
    """
    create table batch_lines (
        tenant text not null,
        batch uuid not null,
        number integer not null,
        custom_id text not null,
        body text not null,
        prefix bytea not null default '',
        state smallint not null default 0,
        owner text not null default '',
        attempt integer not null default 0,
        failures integer not null default 0,
        lease_until timestamptz not null default '-infinity',
        result text not null default '',
        usage text not null default '',
        primary key (tenant, batch, number)
    )
    """,
    "create index batch_lines_open on batch_lines (tenant, batch, prefix, number) where state = 0",
)


def upgrade() -> None:
    for statement in _TABLES:
        op.execute(statement)
