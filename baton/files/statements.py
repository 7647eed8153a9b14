"""The statements of files."""

COLUMNS = "id, purpose, name, bytes, touched_at, expires_at"
_VISIBLE = "ready and (expires_at is null or expires_at > now())"

LOCK_TENANT = "select pg_advisory_xact_lock(hashtextextended($1, 7))"
USED_BYTES = "select coalesce(sum(bytes), 0)::bigint as bytes from files where tenant = $1"
BEGIN_FILE = """
insert into files (tenant, project, id, purpose, name, bytes) values ($1, $2, $3, '', '', $4)
"""
END_FILE = f"""
update files set ready = $8, bytes = $3, sha256 = $4, touched_at = now(),
    purpose = $5, name = $6, expires_at = now() + $7 * interval '1 second'
where tenant = $1 and id = $2 and not ready returning {COLUMNS}
"""
DELETE_FILE = f"""
delete from files where tenant = $1 and project = $2 and id = $3 and {_VISIBLE} returning id
"""
DROP_FILE = "delete from files where tenant = $1 and id = $2"
GET_FILE = f"""
select {COLUMNS} from files where tenant = $1 and project = $2 and id = $3 and {_VISIBLE}
"""
LIST_FILES = f"""
select {COLUMNS} from files where tenant = $1 and project = $2 and {_VISIBLE}
    and ($3::text = '' or purpose = $3) and %s order by id %s limit $5
"""
"""Values: tenant, project, purpose, the last id seen or null, number."""
LIST_ASCENDING = LIST_FILES % ("($4::uuid is null or id > $4)", "asc")
LIST_DESCENDING = LIST_FILES % ("($4::uuid is null or id < $4)", "desc")

SWEEP_FILES = """
delete from files where (tenant, id) in (
    select tenant, id from files where expires_at < now()
    union select tenant, id from files
        where not ready and touched_at < now() - $1 * interval '1 second'
    limit 1000
)
"""
"""Delete what has expired, and uploads that began this many seconds ago and are not whole."""
ORPHANS = "select file from orphaned_objects limit 1000"
ADD_ORPHAN = "insert into orphaned_objects values ($1) on conflict do nothing"
REMOVE_ORPHANS = "delete from orphaned_objects where file = any($1::uuid[])"
