"""Small checkpoints without weights that mean anything, and a server that has models and faults."""
