-- The request log in ClickHouse: records from the Kafka topic, each once, and sums per team and day.
-- docs/usage.md says how they come there.
--
--     clickhouse-client --multiquery < docs/clickhouse.sql
--
-- Change the brokers, the topic and the group below first. The broker's user and certificates are the server's:
-- <kafka> in its configuration, see ClickHouse's documentation of the Kafka engine.

create database if not exists baton;

-- What comes from the topic. Fields are only ever added to records: what is not named here is passed over.
create table if not exists baton.usage_queue
(
    id UUID,
    request_id String,
    tenant LowCardinality(String),
    project LowCardinality(String),
    key LowCardinality(String),
    tier LowCardinality(String),
    batch Bool,
    model LowCardinality(String),
    weights LowCardinality(String),
    adapter LowCardinality(String),
    operation LowCardinality(String),
    frontend LowCardinality(String),
    began_ms Int64,
    ended_ms Nullable(Int64),
    seconds Nullable(Float64),
    first_token_seconds Nullable(Float64),
    queue_seconds Nullable(Float64),
    prompt_tokens UInt64,
    cached_tokens Nullable(UInt64),
    output_tokens Nullable(UInt64),
    kv_byte_seconds Nullable(Float64),
    finish_reasons Array(LowCardinality(String)),
    outcome LowCardinality(String),
    cost_nanodollars Nullable(Int64),
    priority_class LowCardinality(String),
    router LowCardinality(String),
    prefill_worker LowCardinality(String),
    decode_worker LowCardinality(String),
    kv_store LowCardinality(String),
    cache_tier LowCardinality(String),
    router_queue_seconds Nullable(Float64),
    prefill_seconds Nullable(Float64),
    transfer_seconds Nullable(Float64),
    decode_seconds Nullable(Float64),
    moves Nullable(UInt64),
    predicted_first_token_seconds Nullable(Float64),
    predicted_queue_seconds Nullable(Float64),
    predicted_transfer_seconds Nullable(Float64),
    predicted_prefill_seconds Nullable(Float64),
    predicted_token_seconds Nullable(Float64),
    target_first_token_seconds Nullable(Float64),
    target_token_seconds Nullable(Float64),
    placement_reason String,
    provider LowCardinality(String)
)
engine = Kafka
settings
    kafka_broker_list = 'kafka-0:9092,kafka-1:9092',
    kafka_topic_list = 'baton-usage',
    kafka_group_name = 'baton-usage',
    kafka_format = 'JSONEachRow',
    kafka_num_consumers = 1,
    -- A message that is no record does not hold up those behind it: it is kept in usage_errors.
    kafka_handle_error_mode = 'stream';

-- The records. Copies have the same id, tenant, project and time, so parts that are merged keep one of them; a query
-- says `final` so as not to wait for that. Money is whole nano-dollars.
create table if not exists baton.usage_records
(
    id UUID,
    request_id String,
    tenant LowCardinality(String),
    project LowCardinality(String),
    key LowCardinality(String),
    tier LowCardinality(String),
    batch Bool,
    model LowCardinality(String),
    weights LowCardinality(String),
    adapter LowCardinality(String),
    operation LowCardinality(String),
    frontend LowCardinality(String),
    began_ms Int64,
    ended_ms Nullable(Int64),
    seconds Nullable(Float64),
    first_token_seconds Nullable(Float64),
    queue_seconds Nullable(Float64),
    prompt_tokens UInt64,
    cached_tokens Nullable(UInt64),
    output_tokens Nullable(UInt64),
    kv_byte_seconds Nullable(Float64),
    finish_reasons Array(LowCardinality(String)),
    outcome LowCardinality(String),
    cost_nanodollars Nullable(Int64),
    priority_class LowCardinality(String),
    router LowCardinality(String),
    prefill_worker LowCardinality(String),
    decode_worker LowCardinality(String),
    kv_store LowCardinality(String),
    cache_tier LowCardinality(String),
    router_queue_seconds Nullable(Float64),
    prefill_seconds Nullable(Float64),
    transfer_seconds Nullable(Float64),
    decode_seconds Nullable(Float64),
    moves Nullable(UInt64),
    predicted_first_token_seconds Nullable(Float64),
    predicted_queue_seconds Nullable(Float64),
    predicted_transfer_seconds Nullable(Float64),
    predicted_prefill_seconds Nullable(Float64),
    predicted_token_seconds Nullable(Float64),
    target_first_token_seconds Nullable(Float64),
    target_token_seconds Nullable(Float64),
    placement_reason String,
    provider LowCardinality(String),
    day Date materialized toDate(fromUnixTimestamp64Milli(began_ms, 'UTC'))
)
engine = ReplacingMergeTree
partition by toYYYYMM(day)
order by (tenant, project, day, id);

create table if not exists baton.usage_errors
(
    received DateTime default now(),
    partition Int64,
    offset Int64,
    error String,
    message String
)
engine = MergeTree
order by (received, partition, offset)
ttl received + interval 90 day;

create materialized view if not exists baton.usage_to_records to baton.usage_records as
select
    id, request_id, tenant, project, key, tier, batch, model, weights, adapter, operation, frontend,
    began_ms, ended_ms, seconds, first_token_seconds, queue_seconds,
    prompt_tokens, cached_tokens, output_tokens, kv_byte_seconds,
    finish_reasons, outcome, cost_nanodollars,
    priority_class, router, prefill_worker, decode_worker, kv_store, cache_tier,
    router_queue_seconds, prefill_seconds, transfer_seconds, decode_seconds, moves,
    predicted_first_token_seconds, predicted_queue_seconds, predicted_transfer_seconds,
    predicted_prefill_seconds, predicted_token_seconds,
    target_first_token_seconds, target_token_seconds, placement_reason,
    provider
from baton.usage_queue
where length(_error) = 0;

create materialized view if not exists baton.usage_to_errors to baton.usage_errors as
select _partition as partition, _offset as offset, _error as error, _raw_message as message
from baton.usage_queue
where length(_error) > 0;

-- What `baton usage` prints: per project and day (UTC, when requests began). `dollars` is exact.
create view if not exists baton.usage_by_day as
select
    records.day as day,
    records.tenant as tenant,
    records.project as project,
    count() as requests,
    countIf(records.outcome = 'lost') as lost,
    sum(records.prompt_tokens) as prompt_tokens,
    sum(ifNull(records.cached_tokens, 0)) as cached_tokens,
    sum(ifNull(records.output_tokens, 0)) as output_tokens,
    sum(toInt128(ifNull(records.cost_nanodollars, 0))) as cost_nanodollars,
    toDecimal128(sum(toInt128(ifNull(records.cost_nanodollars, 0))), 9) / 1000000000 as dollars,
    countIf(records.outcome != 'lost' and isNull(records.cost_nanodollars)) as unpriced
from baton.usage_records as records final
group by day, tenant, project
order by day, tenant, project;
