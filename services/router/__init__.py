"""The router: places requests on workers, in the path of neither tokens nor KV."""
