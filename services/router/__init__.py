"""The router: answers where a request should run, in the path of neither tokens nor KV."""
