"""What the numbers say: reads result files, draws figures, answers claims. Imports no torch and needs no GPU."""
