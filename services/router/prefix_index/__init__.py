"""Which holder has which KV blocks, as KV events report. Pure: no I/O, no clock."""
