"""Models from hubs, buckets, web servers and folders: complete and checked, or not there at all."""
