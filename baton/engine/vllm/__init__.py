"""vLLM as an engine: the worker steps vLLM's EngineCore itself, on the engine's thread.

A connector within vLLM holds each sequence until the worker says how much of its KV is in place.
Baton's keys are vLLM's block hashes, so one name of a block serves its prefix cache, the events of
the engine, and the store. `core.py` is the one file that uses private names of vLLM.
"""
