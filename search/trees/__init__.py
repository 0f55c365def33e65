"""Trees on top of the best flat strategies of a search: modules and layers that may differ, event by event."""

from forerun.search.board.trees import TreeRow, TreeRows
from forerun.search.trees.beside import check_objective
from forerun.search.trees.tree_search import with_trees

__all__ = ["TreeRow", "TreeRows", "check_objective", "with_trees"]
