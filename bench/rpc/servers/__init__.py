"""One server on each stack, as small as it can be: each streams a token per step and call.

Each module has `async def start(steps: Steps) -> int`, which serves on a free port of 127.0.0.1 and
returns it. Every request is parsed, and every token made and serialized as a message of its own.
"""
