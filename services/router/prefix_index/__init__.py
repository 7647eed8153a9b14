"""Which holder has which KV blocks, as events have told. Pure: no I/O, no clock."""
