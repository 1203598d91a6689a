"""Real cases from public threads: each becomes claims that the cost model confirms or not."""
