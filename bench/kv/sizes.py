"""What is put and got, in every store. Only the standard library: environments of peers use it."""

COUNT = 64
"""Objects of a batch."""
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = {"64 KiB": 64 * KIB, "256 KiB": 256 * KIB, "1 MiB": MIB, "4 MiB": 4 * MIB}
