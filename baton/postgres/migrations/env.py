"""What alembic runs to write the SQL of revisions; it never connects."""

from alembic import context

from baton.postgres.revisions import VERSION_TABLE

context.configure(dialect_name="postgresql", version_table=VERSION_TABLE)
context.run_migrations()
