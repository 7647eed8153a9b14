"""Operations on etcd that an operator does with `etcdctl`, and no process of Baton does."""

import asyncio
from collections.abc import Sequence

from baton.cluster.etcd.local import find_binary


async def delete(endpoints: Sequence[str], key: str) -> bool:
    """Delete a key; return whether it existed."""
    return await _run(endpoints, "del", key) == "1"


async def compact(endpoints: Sequence[str], revision: int) -> None:
    """Discard the history before a revision."""
    await _run(endpoints, "compaction", str(revision))


async def _run(endpoints: Sequence[str], *arguments: str) -> str:
    program = str(find_binary().with_name("etcdctl"))
    process = await asyncio.create_subprocess_exec(
        program, f"--endpoints={','.join(endpoints)}", *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, f"etcdctl {' '.join(arguments)} failed"
    return output.decode().strip()
