"""Why a strategy costs what it costs, and what one change would do."""
