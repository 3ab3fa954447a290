"""Questions to cards: two legs, fused, filtered."""
