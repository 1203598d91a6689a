"""Serves: HTTP routes, the store, the jobs that search, and the command line."""
