"""`baton usage`: usage and cost per team, from Postgres or from files of records."""
