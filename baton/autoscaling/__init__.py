"""What a scaler does with the routers' needed replicas: the numbers, and an HPA's formula."""
