"""Peak memory of every candidate, and how likely it is to run out."""
