"""Who was cancelled: a call, or the task that waits for it. Both raise the same error."""

import asyncio


def task_is_cancelled() -> bool:
    """Whether somebody asked the current task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
