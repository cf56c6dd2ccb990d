"""The published speed ladder for DQN on Pong, rebuilt rung by rung with this project's parts."""
