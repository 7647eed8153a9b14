"""`baton up --autoscale`: pools of local workers that follow the routers' needed replicas."""
