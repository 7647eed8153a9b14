"""What is predicted of batches that run: docs/adr/0107."""

from alembic import op

revision = "0012"
down_revision = "0011"

# `step`: of `baton.batches.urgency`, since `since`. `completes_at`: null while no rate is known.
# `late_since`: from when it was predicted to be late, with `late_seconds`; they stay.
_TABLE = """
    create table batch_forecasts (
        tenant text not null,
        batch uuid not null,
        step smallint not null,
        since timestamptz not null,
        looked_at timestamptz not null,
        completes_at timestamptz,
        late boolean not null,
        late_since timestamptz,
        late_seconds double precision,
        primary key (tenant, batch),
        foreign key (tenant, batch) references batches (tenant, id) on delete cascade
    )
"""


def upgrade() -> None:
    op.execute(_TABLE)
