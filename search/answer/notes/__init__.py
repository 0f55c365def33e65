"""What a leaderboard says about its own certainty and about better requests nearby: ``notes_for`` in ``all_notes``."""
