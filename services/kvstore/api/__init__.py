"""KvStoreService: Get and Put streams, inspection."""
