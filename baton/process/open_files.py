"""How many files and sockets a process may have open."""

import resource

_MOST = 1 << 20
"""As many as Linux lets any process have (fs.nr_open), where it was not told otherwise."""


def take_all_open_files() -> int:
    """Raise the soft limit of this process to the hard one, as Go's programs do; return it.

    Linux gives 1,024 to programs that may use `select`, which knows no more; nothing here does. A
    frontend has a socket for each connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
