"""vLLM as an engine: the worker steps vLLM's EngineCore itself, on the engine's thread.

A connector within vLLM holds each sequence until the worker reports how much of its KV is in place.
Baton's keys are used as vLLM's block hashes, so a block has one name in vLLM's prefix cache, the
events of the engine, and the store. `core.py` is the one file that uses private names of vLLM.
"""
