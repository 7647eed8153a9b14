"""Series in memory, the PromQL of Baton's manifests and alerts, and an HPA's formula."""
