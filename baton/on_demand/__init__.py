"""Models whose workers start on demand: which ones are up, decided on plain values."""
