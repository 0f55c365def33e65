"""Notes of a leaderboard on its certainty and on better requests nearby (``notes_for`` in ``all_notes``)."""
