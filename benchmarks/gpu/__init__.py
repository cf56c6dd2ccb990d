"""What is to be found out on a machine with a GPU, one script a step; README.md has the order and the time of each."""
