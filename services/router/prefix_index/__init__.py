"""Which holder has which KV blocks, by KV events. Pure: no I/O, no clock."""
