"""Records of tenancy in etcd: their fields, secrets, and how they are read and written."""
