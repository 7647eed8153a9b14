"""Which engine serves which checkpoint, determined from config.json before anything is loaded.

Neither torch nor vLLM is imported: `baton up` checks this before it starts a process.
"""
