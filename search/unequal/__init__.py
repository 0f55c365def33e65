"""Plans of pipelines whose stages have unlike numbers of devices and degrees, by dynamic programming."""

from forerun.search.unequal.beside import with_plans

__all__ = ["with_plans"]
