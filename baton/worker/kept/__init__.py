"""Models that stay known without workers: their cards and tokenizers in etcd."""
