"""Which engine serves which checkpoint, read from config.json before anything is loaded.

Neither torch nor vLLM is imported: `baton up` asks before it starts a process.
"""
