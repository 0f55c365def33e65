"""What the catalogue has: a table of each kind (``lists``), and everything about one entry (``facts``)."""
