"""`baton usage`: what teams used and what it cost, from Postgres or from files of records."""
