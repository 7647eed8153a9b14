"""A local cluster's processes: started, watched, restarted, stopped."""
