"""The workers of a request: its placements, worker streams, pauses and suspected crashes."""
