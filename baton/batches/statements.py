"""The statements of batches and lines."""

from baton.batches.records import StoredBatch

COLUMNS = ", ".join(StoredBatch._fields)
AT_ONCE = 10_000
"""Rows that one statement deletes."""

CREATE = f"""
insert into batches (tenant, project, id, key, status, endpoint, input_file, completion_window,
    expires_at, output_expires_seconds, metadata, callback_url)
values ($1, $2, $3, $4, 'validating', $5, $6, $7, now() + $8 * interval '1 second', $9, $10, $11)
returning {COLUMNS}
"""
GET = f"select {COLUMNS} from batches where tenant = $1 and project = $2 and id = $3"
LIST = f"""
select {COLUMNS} from batches
where tenant = $1 and project = $2 and ($3::uuid is null or id < $3) order by id desc limit $4
"""
CANCEL = f"""
update batches set status = 'cancelling', outcome = 'cancelled', cancelling_at = now()
where tenant = $1 and project = $2 and id = $3 and status in ('validating', 'in_progress')
returning {COLUMNS}
"""

WORK = """
select tenant, id, total - completed - failed, completed + failed, failed,
    extract(epoch from in_progress_at)::float8, key
from batches where ended_at is null and status = 'in_progress' order by expires_at limit 1000
"""

EXPIRE = """
update batches set status = 'finalizing', outcome = 'expired', finalizing_at = now()
where ended_at is null and status in ('validating', 'in_progress') and expires_at < now()
"""
CLAIM_BATCH = f"""
with picked as materialized (
    select tenant, id from batches one
    where ended_at is null and status <> 'in_progress' and lease_until < now() and not exists (
        select from batch_lines line where line.tenant = one.tenant and line.batch = one.id
            and line.state = 0 and line.lease_until > now()
    )
    order by expires_at limit 1 for update skip locked
)
update batches set owner = $1, attempt = attempt + 1,
    lease_until = now() + $2 * interval '1 second'
where (tenant, id) in (select tenant, id from picked)
returning {COLUMNS}, attempt
"""
"""A batch to check, or to end: its last lines have ended, here and elsewhere."""
RENEW_BATCH = """
update batches set lease_until = now() + $5 * interval '1 second'
where tenant = $1 and id = $2 and owner = $3 and attempt = $4 returning id
"""
RELEASE_BATCH = """
update batches set owner = '', lease_until = now() + $5 * interval '1 second'
where tenant = $1 and id = $2 and owner = $3 and attempt = $4
"""
BEGIN_LINES = "delete from batch_lines where tenant = $1 and batch = $2"
START_BATCH = """
update batches set status = 'in_progress', in_progress_at = clock_timestamp(), total = $5,
    model = $6, owner = '', lease_until = now()
where tenant = $1 and id = $2 and owner = $3 and attempt = $4 and status = 'validating'
returning id
"""
"""Its transaction began with the check: `now()` is that time."""
FAIL_BATCH = """
with failed as (
    update batches set status = 'failed', ended_at = now(), total = $5, errors = $6, owner = ''
    where tenant = $1 and id = $2 and owner = $3 and attempt = $4 and status = 'validating'
    returning tenant, id, status
), emptied as (
    delete from batch_lines line using failed
    where line.tenant = failed.tenant and line.batch = failed.id
)
select status from failed
"""
CLOSE_LINES = """
with closed as (
    update batch_lines set state = 3, owner = ''
    where tenant = $1 and batch = $2 and state = 0 returning 1
)
update batches set failed = failed + (select count(*) from closed)
where tenant = $1 and id = $2
"""
END_BATCH = """
with written as (
    select id from files where tenant = $1 and id in ($5, $6) for update
), ended as (
    update batches set status = outcome, ended_at = now(), output_file = $5, error_file = $6,
        owner = ''
    where tenant = $1 and id = $2 and owner = $3 and attempt = $4
        and (select count(*) from written) = num_nonnulls($5::uuid, $6::uuid)
    returning tenant, id, status
), shown as (
    update files set ready = true from ended
    where files.tenant = ended.tenant and files.id in ($5, $6)
), emptied as (
    delete from batch_lines line using ended
    where line.tenant = ended.tenant and line.batch = ended.id
)
select status from ended
"""
"""A process that was stopped for long may have written files that a sweep has deleted since: the
batch does not end with these."""
FORGET = f"""
delete from batches where (tenant, id) in (
    select tenant, id from batches where ended_at < now() - $1 * interval '1 day' limit {AT_ONCE}
)
"""
LINES_WITH = """
select number, custom_id, state, result, usage from batch_lines
where tenant = $1 and batch = $2 and state = any($3::smallint[]) and number > $4
order by number limit $5
"""

ACTIVE = """
select tenant, id, key, endpoint, model from batches
where ended_at is null and status = 'in_progress' order by expires_at limit 1000
"""
CLAIM_LINES = """
with picked as materialized (
    select number from batch_lines
    where tenant = $1 and batch = $2 and state = 0 and lease_until < now()
    order by prefix, number limit $5 for update skip locked
)
update batch_lines set owner = $3, attempt = attempt + 1,
    failures = failures + (owner <> '')::int, lease_until = now() + $4 * interval '1 second'
where tenant = $1 and batch = $2 and number = any(array(select number from picked))
returning number, custom_id, body, attempt, failures
"""
"""An owner that is still named has not released the line: it was lost. A subselect in place of
`picked` may run once per line, and claim more than its limit. `any(array(…))` finds the lines by
their key also before Postgres has statistics of a new batch."""
RENEW_LINES = """
update batch_lines line set lease_until = now() + $2 * interval '1 second'
from unnest($3::text[], $4::uuid[], $5::int[], $6::int[]) as mine(tenant, batch, number, attempt)
where line.tenant = mine.tenant and line.batch = mine.batch and line.number = mine.number
    and line.attempt = mine.attempt and line.owner = $1 and line.state = 0
returning line.batch, line.number
"""
RELEASE_LINE = """
update batch_lines set owner = '', failures = failures + $6,
    lease_until = now() + $7 * interval '1 second'
where tenant = $1 and batch = $2 and number = $3 and owner = $4 and attempt = $5 and state = 0
"""
WRITE_LINES = """
with written as (
    update batch_lines line set state = given.state, result = given.result, usage = given.usage,
        body = '', owner = ''
    from unnest($4::int[], $5::int[], $6::smallint[], $7::text[], $8::text[], $9::bigint[],
        $10::bigint[], $11::bigint[])
        as given(number, attempt, state, result, usage, prompt, cached, output)
    where line.tenant = $1 and line.batch = $2 and line.number = any($4::int[])
        and line.number = given.number and line.owner = $3
        and line.attempt = given.attempt and line.state = 0
    returning line.number, line.state, given.prompt, given.cached, given.output
), counted as (
    update batches one set
        completed = one.completed + sums.answered,
        failed = one.failed + sums.failed,
        prompt_tokens = one.prompt_tokens + sums.prompt,
        cached_tokens = one.cached_tokens + sums.cached,
        output_tokens = one.output_tokens + sums.output,
        status = case when one.status = 'in_progress'
            and one.completed + one.failed + sums.answered + sums.failed >= one.total
            then 'finalizing' else one.status end,
        finalizing_at = case when one.status = 'in_progress'
            and one.completed + one.failed + sums.answered + sums.failed >= one.total
            then now() else one.finalizing_at end
    from (
        select count(*) filter (where state = 1)::int as answered,
            count(*) filter (where state = 2)::int as failed, coalesce(sum(prompt), 0) as prompt,
            coalesce(sum(cached), 0) as cached, coalesce(sum(output), 0) as output
        from written
    ) sums
    where one.tenant = $1 and one.id = $2 and sums.answered + sums.failed > 0
)
select number from written
"""
"""Values: tenant, batch, owner, and what is written, by column."""
FORGET_USAGE = """
update batch_lines set usage = '' where tenant = $1 and batch = $2 and number = any($3::int[])
"""
