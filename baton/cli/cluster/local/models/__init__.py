"""The models of a local cluster: what describes them, their workers, and their memory."""
