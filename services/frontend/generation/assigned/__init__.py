"""Where a request runs: its placements, worker streams, pauses and suspected crashes."""
