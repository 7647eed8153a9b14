"""The schema, as alembic's revisions: `versions/` has one file each, named by its number."""
