"""Access to etcd: the client, its certificates, and a local server for development."""
