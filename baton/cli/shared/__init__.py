"""What commands share: options, the cluster's address, tables, errors."""
