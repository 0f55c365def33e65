"""The catalogue for users: a table of each kind of entry (``lists``), and all facts of one entry (``facts``)."""
