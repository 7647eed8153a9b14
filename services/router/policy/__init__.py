"""Which placement is best, and what each would cost. Pure: no I/O, no clock."""
