"""RouterService: Place streams in, placements out."""
