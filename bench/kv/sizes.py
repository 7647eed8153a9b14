"""Objects put and got in every store. Only the standard library, as peers use it too."""

COUNT = 64
"""Objects per batch."""
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = {"64 KiB": 64 * KIB, "256 KiB": 256 * KIB, "1 MiB": MIB, "4 MiB": 4 * MIB}
