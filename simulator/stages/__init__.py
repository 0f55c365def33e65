"""Which layers each pipeline stage has, and the parameters it stores."""
