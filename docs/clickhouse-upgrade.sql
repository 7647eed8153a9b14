-- Tables that an earlier release created, before clickhouse.sql is run again: it then creates what is dropped here.
--
--     clickhouse-client --multiquery < docs/clickhouse-upgrade.sql
--     clickhouse-client --multiquery < docs/clickhouse.sql
--
-- No message is lost or read twice: the position in the topic belongs to the consumer group. Messages of releases
-- before and after are read alike; what one of them does not have is empty.

drop view if exists baton.usage_to_errors;
drop view if exists baton.usage_to_records;
drop table if exists baton.usage_queue;

alter table baton.usage_records
    add column if not exists priority_class LowCardinality(String),
    add column if not exists router LowCardinality(String),
    add column if not exists prefill_worker LowCardinality(String),
    add column if not exists decode_worker LowCardinality(String),
    add column if not exists kv_store LowCardinality(String),
    add column if not exists cache_tier LowCardinality(String),
    add column if not exists router_queue_seconds Nullable(Float64),
    add column if not exists prefill_seconds Nullable(Float64),
    add column if not exists transfer_seconds Nullable(Float64),
    add column if not exists decode_seconds Nullable(Float64),
    add column if not exists moves Nullable(UInt64),
    add column if not exists predicted_first_token_seconds Nullable(Float64),
    add column if not exists predicted_queue_seconds Nullable(Float64),
    add column if not exists predicted_transfer_seconds Nullable(Float64),
    add column if not exists predicted_prefill_seconds Nullable(Float64),
    add column if not exists predicted_token_seconds Nullable(Float64),
    add column if not exists target_first_token_seconds Nullable(Float64),
    add column if not exists target_token_seconds Nullable(Float64),
    add column if not exists placement_reason String,
    add column if not exists provider LowCardinality(String);
