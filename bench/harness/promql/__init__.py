"""Series in memory, and the PromQL of Baton's manifests and alerts."""
