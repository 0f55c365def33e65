"""How long a pipeline of stages takes for all microbatches, in closed form."""
