"""A process that searches, and nothing else: it starts without the web and job frameworks."""
