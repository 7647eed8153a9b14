"""Stored conversations: items, responses and the chains that they form, in Postgres.

Rows relate as follows. Ids are UUIDv7; months are partitions, and each row names its tenant.

- A *conversation* has items, from its own id to `last_item`. `version` counts its turns: a turn
  that was computed from another version is not written. Chains of responses are conversations too,
  hidden from lists.
- An *item* is one message, call, output or reasoning. Its body is the JSON that clients send and
  receive.
- A *response* has a block of ids: its own, then those of its input items, then those of its output
  items, up to `last_item`. Its path is its conversation up to `last_item`, after the conversation's
  prefix.
- A response that continues another one moves the same hidden conversation on. If that one has moved
  on already, it begins a conversation whose *prefix* names the earlier ones, each up to an item.
  Nothing is copied, and nothing follows a chain of responses.
- A *compaction* is a summary of all items of a path up to one of them. Every path with that item
  may have it in their place.

Each statement names the tenant, and both bounds of ids as values, so that Postgres reads only the
months between them.
"""
