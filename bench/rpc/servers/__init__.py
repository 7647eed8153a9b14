"""A minimal server on each stack, which streams a token per step and call.

Each module has `async def start(steps: Steps) -> int`, which serves on a free port of 127.0.0.1 and
returns it. Every request is parsed, and every token is created and serialized as a separate
message.
"""
