"""`baton models`: list the models of a cluster; download, check and describe others."""
