"""Conventions of HTTP that every route shares."""
