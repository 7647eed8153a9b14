"""What routers' tests place, and placement as it is meant."""
