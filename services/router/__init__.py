"""The router: places requests on workers; neither tokens nor KV pass through it."""
