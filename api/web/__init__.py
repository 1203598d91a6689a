"""Pages for people: ask, follow, browse, look. No script, nothing from another host."""
