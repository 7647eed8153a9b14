"""Limits of keys, projects and tenants, shared by all frontends with no counter that all hit.

Per limit one router has a bucket, and frontends spend prepaid chunks of it. Pure: time is an
argument, and messages are handed in and out.
"""
