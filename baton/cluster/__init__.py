"""Who is alive, and what the cluster agrees on: etcd, registration, discovery, tenants."""
