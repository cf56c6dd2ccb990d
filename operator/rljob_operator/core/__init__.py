"""The pure core: what is wanted and found goes in, what is to be done comes out. No I/O, no clock, no randomness."""
