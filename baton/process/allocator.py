"""Keeps freed memory for later allocations."""

_LARGEST_KEPT = 32 * 1024 * 1024 - 64 * 1024
"""Just below DEFAULT_MMAP_THRESHOLD_MAX of glibc on 64-bit machines, see mallopt(3)."""


def keep_freed_memory() -> None:
    """Let the C allocator keep up to 64 MiB of freed memory per arena, in blocks below 32 MiB.

    glibc maps a block of 128 KiB or more on its own and unmaps it when it is freed, so that every
    message of 1 MiB begins with 256 page faults and each buffer that it was gathered in with as
    many. Once a larger block has been freed its thresholds follow that block. Here the largest
    such block is freed once; it is never written to, so it costs nothing. Thresholds set by
    `MALLOC_*` in the environment stay, and other allocators are unaffected.
    """
    bytearray(_LARGEST_KEPT)
