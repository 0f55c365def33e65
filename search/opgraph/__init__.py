"""What is asked of operator graphs alone: how far each way of splitting goes, what a change brings, trees."""
