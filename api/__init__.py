"""Serves: HTTP routes, store, durable jobs, web pages and the command line."""
