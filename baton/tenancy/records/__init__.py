"""Records of tenancy in etcd: their fields, secrets, how they are read and written."""
