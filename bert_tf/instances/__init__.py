"""Token ids to masked next-sentence pairs: pure functions of (ids, rng)."""
