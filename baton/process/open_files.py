"""The limit on open files and sockets of a process."""

import resource

_MOST = 1 << 20
"""The most that Linux allows any process (fs.nr_open) by default."""


def take_all_open_files() -> int:
    """Raise the soft limit of this process to the hard one, as Go's programs do; return it.

    The soft limit is 1,024 for the sake of `select`, which supports no more and is not used here. A
    frontend has a socket for each connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
